"""Monitors in a real Model.train: MindSpore loads the checkpoints, and a failed save loses none."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model
from mindspore.train.callback import Callback, RunContext
from mindspore.train.callback._callback import InternalCallbackParam

import mindspore as ms
from mindspore import nn
from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.storage.store_errors import FullError
from paceline.training import as_callback, cloud_session, monitors_from_config


def model(kind: Any = ms.float32) -> tuple[Model, nn.Cell]:
    network = nn.Dense(3, 2).to_float(kind)
    optimizer = nn.Adam(network.trainable_params(), learning_rate=0.01)
    return Model(network, nn.MSELoss(), optimizer), network


def data() -> Any:
    generator = np.random.default_rng(1)
    rows = [(generator.random(3, np.float32), generator.random(2, np.float32)) for _ in range(12)]
    return GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)


CALLBACKS = [
    {"type": "MFLossMonitor"},
    {"type": "SummaryMonitor", "collect_freq": 2},
    {
        "type": "CheckpointMointor",
        "prefix": "dense",
        "save_checkpoint_steps": 3,
        "keep_checkpoint_max": 2,
        "integrated_save": True,
        "async_save": True,
        "save_network_params": True,
    },
    {"type": "ObsMonitor", "step_upload_frequence": 4},
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_real_training_writes_what_the_config_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained, network = model()
    with caplog.at_level(logging.INFO), cloud_session(tmp_path / "run", str(tmp_path / "home")) as session:
        monitors = monitors_from_config(CALLBACKS, session)
        trained.train(2, data(), callbacks=[as_callback(monitors)], dataset_sink_mode=False)
    point = find_resume_point(tmp_path / "home")
    assert (point.epoch, point.step, point.global_step) == (2, 6, 12)
    loaded = ms.load_checkpoint(str(tmp_path / "home" / point.files[0][0]))
    np.testing.assert_array_equal(loaded["weight"].asnumpy(), network.weight.asnumpy())
    assert int(loaded["epoch_num"].asnumpy()) == 2 and int(loaded["step_num"].asnumpy()) == 6
    assert loaded["moment1.weight"].shape == (2, 3)
    _, again = model()
    missing, _ = ms.load_param_into_net(again, loaded)
    assert not missing
    network_only = ms.load_checkpoint(
        str(tmp_path / "home" / "checkpoint_network" / "rank_0" / "dense_rank_0-network.ckpt")
    )
    assert set(network_only) == {"weight", "bias"}
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("{ Epoch:[")]
    assert len(lines) == 12 and lines[-1].startswith("{ Epoch:[  2/  2], step:[    6/    6], loss: ")
    assert "lr: 0.01," in lines[-1]
    assert list((tmp_path / "home" / "summary" / "rank_0").iterdir())


def test_data_sinking_is_ignored_on_a_cpu_and_steps_keep_their_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MindSpore then runs whole epochs step by step, but still says that one has sink_size steps."""
    trained, _ = model()
    save = {"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 1, "keep_checkpoint_max": 0}
    with caplog.at_level(logging.INFO), cloud_session(tmp_path / "run") as session:
        monitors = monitors_from_config([{"type": "MFLossMonitor"}, save], session)
        trained.train(2, data(), callbacks=[as_callback(monitors)], dataset_sink_mode=True, sink_size=2)
    names = {path.name for path in (tmp_path / "run" / "checkpoint" / "rank_0").glob("*.ckpt")}
    assert names == {f"dense_rank_0-{epoch}_{step}.ckpt" for epoch in (1, 2) for step in range(1, 7)}
    assert "step:[    6/    6]" in caplog.text and "100.0% |" in caplog.text


def test_with_data_sinking_several_steps_end_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No sink on a CPU: MindSpore's own parameters, moved as its loop for devices moves them."""
    trained, network = model()
    parameters = InternalCallbackParam()
    parameters.update(
        train_network=trained.train_network,
        network=network,
        train_dataset=data(),
        batch_num=4,
        epoch_num=3,
        cur_step_num=0,
        dataset_sink_mode=True,
        net_outputs=ms.Tensor(0.5),
    )
    save = {"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 6, "keep_checkpoint_max": 0}
    with caplog.at_level(logging.INFO), cloud_session(tmp_path / "run") as session:
        callback = as_callback(monitors_from_config([{"type": "MFLossMonitor"}, save], session))
        callback.on_train_begin(RunContext(parameters))
        for parameters.cur_epoch_num in (1, 2, 3):
            parameters.cur_step_num += 4
            callback.on_train_step_begin(RunContext(parameters))
            callback.on_train_step_end(RunContext(parameters))
            callback.on_train_epoch_end(RunContext(parameters))
        callback.on_train_end(RunContext(parameters))
    lines = [record.getMessage() for record in caplog.records if "Epoch:[" in record.getMessage()]
    for line, epoch in zip(lines, (1, 2, 3), strict=True):
        assert line.startswith(f"{{ Epoch:[  {epoch}/  3], step:[    4/    4], loss: 0.500")
    names = {path.name for path in (tmp_path / "run" / "checkpoint" / "rank_0").glob("*.ckpt")}
    assert names == {"dense_rank_0-2_4.ckpt", "dense_rank_0-3_4.ckpt"}  # the first sink ends before the sixth step


class FailsAt(Callback):
    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self._step:
            raise ValueError("the loss is on fire")


def test_exception_save_writes_a_checkpoint_and_raises_the_original_exception(tmp_path: Path) -> None:
    trained, network = model()
    save = {"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 100, "exception_save": True}
    with pytest.raises(ValueError, match="on fire"), cloud_session(tmp_path / "run") as session:
        monitors = monitors_from_config([save], session)
        trained.train(2, data(), callbacks=[as_callback(monitors), FailsAt(4)], dataset_sink_mode=False)
    point = find_resume_point(tmp_path / "run")
    assert point.global_step == 4
    loaded = ms.load_checkpoint(str(tmp_path / "run" / point.files[0][0]))
    np.testing.assert_array_equal(loaded["weight"].asnumpy(), network.weight.asnumpy())


def test_steps_of_an_evaluation_are_not_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = nn.Dense(3, 2)
    trained = Model(network, nn.MSELoss(), nn.Adam(network.trainable_params()), metrics={"loss"})
    with caplog.at_level(logging.INFO), cloud_session(tmp_path / "run") as session:
        monitors = monitors_from_config([{"type": "MFLossMonitor"}], session)
        trained.fit(2, data(), data(), callbacks=[as_callback(monitors)], dataset_sink_mode=False)
    lines = [record.getMessage() for record in caplog.records if "Epoch:[" in record.getMessage()]
    assert len(lines) == 12 and lines[-1].startswith("{ Epoch:[  2/  2], step:[    6/    6], loss: ")


def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    ms.set_seed(3)
    whole, network = model()
    start = {p.name: ms.Parameter(p.asnumpy().copy(), name=p.name) for p in network.get_parameters()}

    def train(trained: Model, epochs: int, callback: Any, first: int = 0) -> None:
        trained.train(epochs, data(), callbacks=[callback], dataset_sink_mode=False, initial_epoch=first)

    with cloud_session(tmp_path / "whole") as session:
        save = [{"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 6}]
        train(whole, 2, as_callback(monitors_from_config(save, session)))
    first, half = model()
    ms.load_param_into_net(half, start)
    with cloud_session(tmp_path / "run") as session:
        train(first, 1, as_callback(monitors_from_config(save, session)))
    point = find_resume_point(tmp_path / "run")
    assert point.global_step == 6
    second, rest = model()
    loaded = ms.load_checkpoint(str(tmp_path / "run" / point.files[0][0]))
    ms.load_param_into_net(rest, loaded)
    ms.load_param_into_net(second._optimizer, loaded)
    with cloud_session(tmp_path / "run") as session:
        train(second, 2, as_callback(monitors_from_config(save, session), initial_step=6), first=1)
    point = find_resume_point(tmp_path / "run")
    assert (point.epoch, point.step, point.global_step) == (2, 6, 12)
    np.testing.assert_array_equal(rest.weight.asnumpy(), network.weight.asnumpy())


def test_a_resumed_training_without_initial_epoch_is_in_a_later_epoch(tmp_path: Path) -> None:
    """MindSpore itself counts its epochs from 1 then: a checkpoint of epoch 1 would not be the newest."""
    trained, _ = model()
    save = [{"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 6}]
    with cloud_session(tmp_path / "run") as session:
        callback = as_callback(monitors_from_config(save, session), initial_step=12)
        trained.train(1, data(), callbacks=[callback], dataset_sink_mode=False)
    point = find_resume_point(tmp_path / "run")
    assert (point.epoch, point.step, point.global_step) == (3, 6, 18)


def test_a_save_that_fails_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MindSpore deletes the oldest before it writes the new one, and would be left with none."""
    trained, _ = model()
    save = [{"type": "CheckpointMonitor", "prefix": "dense", "save_checkpoint_steps": 3, "keep_checkpoint_max": 1}]
    with cloud_session(tmp_path / "run") as session:
        monitor = monitors_from_config(save, session)[0]
        from paceline.training.checkpointing import rank_saver

        real, calls = rank_saver.write_file, []

        def fails_later(path: Path, *words: Any) -> Any:
            calls.append(path)
            if len(calls) > 1:
                raise FullError(f"{path}: no space left on the device")
            return real(path, *words)

        monkeypatch.setattr(rank_saver, "write_file", fails_later)
        trained.train(2, data(), callbacks=[as_callback([monitor])], dataset_sink_mode=False)
    assert len(calls) > 2 and "no space left" in caplog.text
    point = find_resume_point(tmp_path / "run")
    assert point.global_step == 3
    assert "weight" in ms.load_checkpoint(str(tmp_path / "run" / point.files[0][0]))
    state = json.loads((tmp_path / "run" / "log" / "rank_0" / "checkpoint-monitor.json").read_text())
    assert state["failures"] >= 2


def test_safetensors_and_bfloat16_are_loaded_bit_by_bit(tmp_path: Path) -> None:
    from paceline.checkpoint.write_checkpoint import write_file
    from paceline.training.checkpointing.weight_snapshot import WeightSnapshot

    values = {
        "b": ms.Tensor(np.arange(6).reshape(2, 3), ms.bfloat16),
        "f": ms.Tensor(np.arange(3), ms.float16),
        "s": 7,
        "i": ms.Tensor([1, 2], ms.int32),
    }
    for format in ("ckpt", "safetensors"):
        write_file(tmp_path / f"x.{format}", WeightSnapshot().take(values), format)
        loaded = ms.load_checkpoint(str(tmp_path / f"x.{format}"), format=format)
        assert loaded["b"].dtype == ms.bfloat16 and loaded["b"].shape == (2, 3)
        assert (loaded["b"].astype(ms.float32).asnumpy() == np.arange(6).reshape(2, 3)).all()
        assert loaded["f"].dtype == ms.float16 and int(loaded["s"].asnumpy()) == 7
