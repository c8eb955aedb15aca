"""Callbacks for Hugging Face's Trainer and for Lightning, with the real libraries on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrix.conftest import environment, run

_PACKAGES = ("torch", "numpy", "lightning", "transformers", "accelerate")
_SPY = """
import json, sys, torch
from paceline.training import CheckpointMonitor, MFLossMonitor, Monitor, OutputTree
where, fails = sys.argv[1], "fails" in sys.argv

class Spy(Monitor):
    def train_begin(self, state): self.told("begin", state.world_size, state.step, state.total_steps, state.steps_per_epoch)
    def step_end(self, state): self.told("step", state.step, state.epoch, state.loss, state.rate())
    def train_end(self, state): self.told("end", state.step)
    def train_failed(self, state, error): self.told("failed", str(error))
    def close(self): self.told("closed")
    def told(self, *what):
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        with open(f"{where}-{rank}.jsonl", "a") as file:
            file.write(json.dumps(what) + "\\n")

monitors = [Spy(), MFLossMonitor(), CheckpointMonitor("m", save_checkpoint_steps=4, outputs=OutputTree(where))]
loss_of_call = 0
def loss(value):  # 1, 2, 3, ...
    global loss_of_call
    loss_of_call += 1
    if fails and loss_of_call == 3:
        raise ValueError("of the training")
    return value.square().mean() * 0 + float(loss_of_call)
"""
_TRAINER = """
from transformers import Trainer, TrainingArguments
from paceline.integrations.transformers import PacelineCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        return {"loss": loss(self.linear(x)), "logits": x}

given = TrainingArguments(where, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, learning_rate=1.0,
    report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
data = [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(16)]
Trainer(Model(), given, train_dataset=data, callbacks=[PacelineCallback(monitors)]).train()
"""
_LIGHTNING = """
import lightning
from paceline.integrations.lightning import PacelineCallback

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def training_step(self, batch, number): return loss(self.linear(batch))
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.5)

ranks = 2 if "ddp" in sys.argv else 1
data = torch.utils.data.DataLoader(torch.ones(16 * ranks, 4), batch_size=4)
lightning.Trainer(max_epochs=2, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", logger=False,
    enable_checkpointing=False, enable_progress_bar=False, callbacks=[PacelineCallback(monitors)]).fit(Model(), data)
"""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = environment("3.11", tmp_path_factory.mktemp("trainers") / "venv")
    run(str(found), "-m", "pip", "install", "--quiet", f"{wheel}[checkpoint]", *_PACKAGES)
    return found


def _train(python: Path, script: str, where: Path, *words: str) -> list[list[object]]:
    """What the first rank's monitors were told."""
    file = where / "train.py"
    file.write_text(_SPY + script)
    if "fails" in words:
        with pytest.raises(AssertionError, match="of the training"):
            run(str(python), str(file), str(where / "out"), *words, cwd=where)
    else:
        run(str(python), str(file), str(where / "out"), *words, cwd=where)
    return _told(where, 0)


def _told(where: Path, rank: int) -> list[list[object]]:
    return [json.loads(line) for line in (where / f"out-{rank}.jsonl").read_text().splitlines()]


def _saved(where: Path) -> list[str]:
    return sorted(path.name for path in (where / "out" / "checkpoint").rglob("*.ckpt"))


def test_trainer_gives_each_step_the_loss_and_rate_of_itself(python: Path, tmp_path: Path) -> None:
    told = _train(python, _TRAINER, tmp_path)
    mean = [None, 1.5, None, 3.5, None, 5.5, None, 7.5]  # what Trainer logs
    steps = [["step", step, 1 + (step > 4), mean[step - 1], 1.0 - (step - 1) / 8] for step in range(1, 9)]
    assert told == [["begin", 1, 0, 8, 4], *steps, ["end", 8], ["closed"]]
    assert _saved(tmp_path) == ["m_rank_0-1_4.ckpt", "m_rank_0-2_4.ckpt"]


def test_lightning_gives_each_step_its_loss(python: Path, tmp_path: Path) -> None:
    told = _train(python, _LIGHTNING, tmp_path)
    steps = [["step", step, 1 + (step > 4), float(step), 0.5] for step in range(1, 9)]
    assert told == [["begin", 1, 0, 8, 4], *steps, ["end", 8], ["closed"]]
    assert _saved(tmp_path) == ["m_rank_0-1_4.ckpt", "m_rank_0-2_4.ckpt"]


def test_lightnings_own_processes_are_ranks(python: Path, tmp_path: Path) -> None:
    """It sets LOCAL_RANK and no RANK."""
    for told in (_train(python, _LIGHTNING, tmp_path, "ddp"), _told(tmp_path, 1)):
        assert (told[0], told[-2:]) == (["begin", 2, 0, 8, 4], [["end", 8], ["closed"]])
    assert {path.parent.name for path in (tmp_path / "out" / "checkpoint").rglob("*.ckpt")} == {"rank_0", "rank_1"}


@pytest.mark.parametrize("script", [_TRAINER, _LIGHTNING], ids=["trainer", "lightning"])
def test_a_training_that_fails_closes_its_monitors(script: str, python: Path, tmp_path: Path) -> None:
    told = _train(python, script, tmp_path, "fails")
    assert [each[:2] for each in told[1:]] == [["step", 1], ["step", 2], ["failed", "of the training"], ["closed"]]
