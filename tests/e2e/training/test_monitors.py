"""Monitors from a YAML list in torch loops; the documented log line; errors with the nearest valid name."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.core.errors import PacelineError, UsageError
from paceline.training import (
    CheckpointMonitor,
    MFLossMonitor,
    Monitor,
    Monitored,
    ObsMonitor,
    OutputTree,
    TrainingState,
    cloud_session,
    monitors_from_config,
)
from paceline.training.monitors.loss import StepReport, format_lines
from support.training.running import weights_in


class Mine(Monitor):
    def __init__(self, word: str = "") -> None:
        self.word = word


def test_the_log_line_is_the_documented_one() -> None:
    done = StepReport(
        step=102,
        epoch=2,
        step_in_epoch=2,
        steps_per_epoch=100,
        total_steps=850,
        batch=4,
        rate=1e-05,
        loss=5.1234,
        seconds=0.48,
        loss_scale=65536.0,
        overflow=False,
    )
    first, second = format_lines(done)
    assert first == (
        "{ Epoch:[  2/  9], step:[    2/  100], loss: 5.123, per_step_time: 480ms, lr: 1e-05, overflow cond: False, "
        "loss_scale: 65536.0"
    )
    assert second == f"  12.0% |{'█' * 6}{' ' * 44}| 8.33 samples/s/p  0:05:59 }}"


def test_every_documented_monitor_is_created_from_a_list(tmp_path: Path) -> None:
    with cloud_session(tmp_path / "run", str(tmp_path / "home")) as session:
        made = monitors_from_config(
            [
                {"type": "MFLossMonitor", "origin_epochs": 3, "micro_batch_num": 2},
                {"type": "SummaryMonitor"},
                {
                    "type": "CheckpointMointor",
                    "prefix": "gpt",
                    "save_checkpoint_steps": 1,
                    "integrated_save": True,
                    "async_save": False,
                    "enc_key": None,
                    "keep_checkpoint_per_n_minutes": 0,
                },
                {"type": "CheckpointMonitor", "checkpoint_format": "safetensors", "remove_redundancy": False},
                {"type": "ObsMonitor", "upload_sequence": 10, "keep_last": False},
                {"type": "ObsMonitor", "step_upload_frequence": 5, "epoch_upload_frequence": 1, "rank_id": 0},
                {"type": f"{__name__}:Mine", "word": "own"},
            ],
            session,
            profile={"profile": True, "profile_start_step": 2, "profile_stop_step": 3, "profile_memory": True},
        )
        kinds = [type(each).__name__ for each in made]
    assert kinds == [
        "MFLossMonitor",
        "SummaryMonitor",
        "CheckpointMonitor",
        "CheckpointMonitor",
        "ObsMonitor",
        "ObsMonitor",
        "Mine",
        "ProfileMonitor",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "ChekpointMonitor"}, "unknown type 'ChekpointMonitor', did you mean 'CheckpointMonitor'?"),
        ({"type": "CheckpointMonitor", "save_checkpoint_step": 1}, "did you mean 'save_checkpoint_steps'?"),
        ({"type": "CheckpointMonitor", "enc_key": "secret"}, "unknown parameter 'enc_key'"),
        ({"type": "ObsMonitor", "upload_seqence": 1}, "did you mean 'upload_sequence'?"),
        (
            {"type": "ObsMonitor", "upload_sequence": 1, "step_upload_frequence": 2},
            "set the same interval to different values",
        ),
        ({"type": "MFLossMonitor", "per_print_times": 0}, "per_print_times 0 must be at least 1"),
        ({"type": "no.such.module:Thing"}, "no.such.module:Thing: No module named"),
        ({"type": "pathlib:Path"}, "is not a paceline.training.Monitor"),
        ({}, "unknown type ''"),
    ],
)
def test_errors_name_the_nearest_valid_name(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with cloud_session(tmp_path / "run") as session, pytest.raises(UsageError) as caught:
        monitors_from_config([entry], session)
    assert message in str(caught.value)


def test_a_loss_that_is_not_finite_is_logged_or_stops_training(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Monitored([MFLossMonitor()], TrainingState(total_steps=1)) as loop:
        loop.step_end(loss=float("nan"))
    assert "the loss is nan" in caplog.text
    strict = MFLossMonitor(check_for_nan_in_loss_and_grad=True)
    with pytest.raises(PacelineError, match="step 1: the loss is inf"), Monitored([strict], TrainingState()) as loop:
        loop.step_end(loss=lambda: float("inf"))


def test_the_loss_is_read_only_on_demand() -> None:
    asked: list[int] = []
    state = TrainingState(total_steps=10)

    def loss() -> float:
        asked.append(state.step)
        return 1.0

    with Monitored([MFLossMonitor(5), MFLossMonitor(5)], state) as loop:
        for _ in range(10):
            loop.step_begin()
            loop.step_end(loss=loss)
    assert asked == [5, 10]


def test_summary_writes_tensorboard_events_or_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.training.monitors import summary

    for place in ("events", "lines"):
        if place == "lines":
            monkeypatch.setattr(summary, "_WRITERS", ())
        monitor = summary.SummaryMonitor(collect_freq=2, outputs=OutputTree(tmp_path / place))
        with Monitored([monitor], TrainingState(batch_size=4, learning_rate=0.5)) as loop:
            for step in range(5):
                loop.step_end(loss=float(step))
    events = list((tmp_path / "events" / "summary" / "rank_0").glob("events.out.tfevents.*"))
    assert len(events) == 1 and b"learning_rate" in events[0].read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "lines/summary/rank_0/scalars.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line] == [1.0, 3.0]
    assert {key for line in lines for key in line} >= {"learning_rate", "step_time_ms", "samples_per_second"}


def test_obs_monitor_without_a_target_warns_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Monitored([ObsMonitor(tmp_path)], TrainingState()) as loop:
        loop.step_end()
    assert "nothing will be uploaded" in caplog.text


def test_obs_monitor_without_a_session_uploads_everything_at_the_end(tmp_path: Path) -> None:
    monitors = [
        CheckpointMonitor("gpt", outputs=OutputTree(tmp_path / "run")),
        ObsMonitor(tmp_path / "run", str(tmp_path / "home"), upload_frequence=2),
    ]
    state = TrainingState(weights=lambda: {"w": np.ones(3)})
    with Monitored(monitors, state) as loop:
        for _ in range(3):
            loop.step_end()
    assert find_resume_point(tmp_path / "home").global_step == 3


def test_a_torch_model_and_its_optimizer_are_saved_and_loaded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from paceline.training import load_torch_state, torch_state

    def make() -> Any:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2, dtype=torch.float32))
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(model: Any, optimizer: Any, number: int) -> None:
        optimizer.zero_grad()
        model(torch.full((2, 3), float(number))).square().mean().backward()
        optimizer.step()

    model, optimizer = make()
    state = torch_state(model, optimizer, total_steps=3)
    with Monitored(
        [CheckpointMonitor("net", outputs=OutputTree(tmp_path), save_checkpoint_steps=3, async_save=True)], state
    ) as loop:
        for number in range(3):
            step(model, optimizer, number)
            loop.step_end(loss=0.0)
    step(model, optimizer, 3)
    other, other_optimizer = make()
    found = weights_in(tmp_path / find_resume_point(tmp_path).files[0][0])
    load_torch_state(found, other, other_optimizer)
    step(other, other_optimizer, 3)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_bfloat16_keeps_its_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from paceline.checkpoint.write_checkpoint import write_file
    from paceline.training.checkpointing.weight_snapshot import WeightSnapshot, wrap_weights

    tensor = torch.randn(5, 3).to(torch.bfloat16).T  # not contiguous
    for format in ("ckpt", "safetensors"):
        write_file(tmp_path / f"x.{format}", WeightSnapshot().take({"t": tensor}), format)
        write_file(tmp_path / f"y.{format}", wrap_weights({"t": tensor}), format)
        for name in "xy":
            found = weights_in(tmp_path / f"{name}.{format}")["t"]
            assert found.dtype.name == "bfloat16" and found.shape == (3, 5)
            assert found.view(np.int16).tolist() == tensor.contiguous().view(torch.int16).tolist()


def test_a_snapshot_keeps_every_bit_while_training_continues() -> None:
    torch = pytest.importorskip("torch")
    from paceline.training.checkpointing.weight_snapshot import WeightSnapshot, wrap_weights

    values: dict[str, Any] = {
        "plain": torch.randn(300, 70), "strided": torch.randn(64, 33).T, "half": torch.randn(9).to(torch.bfloat16),
        "flag": torch.tensor([True, False]), "scalar": torch.tensor(3), "none": torch.zeros(0, 4),
        "last": torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last), "array": np.arange(12.0).reshape(3, 4).T,
        "parameter": torch.nn.Parameter(torch.randn(5)), "number": 7, "fraction": 0.5,
    }  # fmt: skip
    wanted = [(each.name, each.dtype, each.shape, bytes(each.data)) for each in wrap_weights(values)]
    snapshot = WeightSnapshot()
    snapshot.prepare(values)
    first = snapshot.take(values)
    place = snapshot._memory.ctypes.data
    with torch.no_grad():
        for value in values.values():
            if isinstance(value, torch.Tensor):
                value.zero_()
    assert [(each.name, each.dtype, each.shape, bytes(each.data)) for each in first] == wanted
    snapshot.take(values)
    assert snapshot._memory.ctypes.data == place  # no fresh memory for the second


def test_unsupported_tensors_are_reported_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    sparse = torch.eye(3).to_sparse()
    for beside in (True, False):
        for value, message in (
            (sparse, "w: tensors with layout torch.sparse_coo"),
            ([1, 2], "w: tensors of type list cannot be saved"),
            (np.zeros(2, ">f4"), "w: tensors of type >f4 cannot be saved"),
        ):
            caplog.clear()
            state = TrainingState(weights=lambda value=value: {"w": value})  # type: ignore[misc]
            monitor = CheckpointMonitor(outputs=OutputTree(tmp_path), save_checkpoint_steps=2, async_save=beside)
            with Monitored([monitor], state) as loop:
                loop.step_end()
                loop.step_end()
            assert message in caplog.text and "this checkpoint is skipped, training continues" in caplog.text


def test_log_lines_are_complete_when_the_process_exits() -> None:
    script = (
        "import logging, sys, time\n"
        "from paceline.training import MFLossMonitor, TrainingState\n"
        "logging.basicConfig(level=logging.INFO, format='%(created)s %(message)s', stream=sys.stdout)\n"
        "monitor, state = MFLossMonitor(), TrainingState(total_steps=500)\n"
        "for state.step in range(1, 501):\n"
        "    state.loss = state.step; monitor.step_end(state)\n"
        "print(time.time(), 'loop is over', flush=True); time.sleep(0.01)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    over = next(float(line.split()[0]) for line in done.stdout.splitlines() if "loop is over" in line)
    lines = [line for line in done.stdout.splitlines() if "Epoch:[" in line]
    assert [float(line.split("loss: ")[1].split(",")[0]) for line in lines] == list(range(1, 501))
    assert all(float(line.split()[0]) <= over for line in lines)


def test_importing_loads_no_modules_and_starts_no_threads() -> None:
    script = (
        "import sys, threading; import paceline.training as t; before = set(sys.modules)\n"
        "heavy = {'numpy', 'msgspec', 'obstore', 'obs', 'asyncssh', 'duckdb', 'torch', 'mindspore'} & before\n"
        "assert not heavy, heavy; assert threading.active_count() == 1\n"
        "assert t.cloud_session and t.ObsMonitor and t.Monitored\n"
        "heavy = {'obstore', 'obs', 'asyncssh', 'duckdb', 'torch', 'mindspore'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
