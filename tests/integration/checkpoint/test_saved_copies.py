"""Tensors of one name that ranks saved with different values: pipeline stages of equal modules, BatchNorm's statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.checkpoint.transform import TransformRequest, convert, transform
from paceline.cli.main import application
from paceline.core.errors import PacelineError
from paceline.training import CheckpointMonitor, Monitored, OutputTree, resume_torch, torch_state
from paceline.training.ranks import Ranks

torch = pytest.importorskip("torch")


def _as_rank(rank: int, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", world)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PACELINE_RUN_ID", "one")


def _model(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


def _save(output: Path, monkeypatch: pytest.MonkeyPatch, *, seeds: tuple[int, int]) -> list[dict[str, Any]]:
    """Two ranks one after the other; what each had at the end."""
    kept = []
    for rank, seed in enumerate(seeds):
        _as_rank(rank, 2, monkeypatch)
        model = _model(seed)
        optimizer = torch.optim.AdamW(model.parameters())
        monitor = CheckpointMonitor("m", save_checkpoint_steps=1, outputs=OutputTree(output))
        with Monitored([monitor], torch_state(model, optimizer, total_steps=1)) as loop:
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            model[1].running_mean += rank  # each rank's own data
            loop.step_end(loss=1.0)
        kept.append({name: value.clone() for name, value in model.state_dict().items()})
    return kept


def _resumed(output: Path, rank: int, world: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    _as_rank(rank, world, monkeypatch)
    model = _model(9)
    resume_torch(output / "checkpoint", model, torch.optim.AdamW(model.parameters()))
    return dict(model.state_dict())


def _equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def test_stages_of_equal_modules_get_their_own_values_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = _save(tmp_path, monkeypatch, seeds=(0, 1))
    assert [_equal(_resumed(tmp_path, rank, 2, monkeypatch), saved[rank]) for rank in (0, 1)] == [True, True]
    with pytest.raises(PacelineError, match=r"0\.weight: ranks 0 and 1 saved different values under this name"):
        _resumed(tmp_path, 0, 3, monkeypatch)


def test_replicas_resume_on_any_number_of_ranks_with_statistics_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = _save(tmp_path, monkeypatch, seeds=(0, 0))
    assert _equal(_resumed(tmp_path, 1, 2, monkeypatch), saved[1])
    assert _equal(_resumed(tmp_path, 2, 3, monkeypatch), saved[0])


def _stages(where: Path, *seeds: int, dtype: str = "float32") -> Path:
    """Ranks that each say to hold rows 0 and 1 of 4 of the same tensors, and one that holds the others."""
    from safetensors.torch import save_file

    for rank, seed in enumerate(seeds):
        torch.manual_seed(seed)
        tensors = {f"layers.{n}.weight": torch.randn(2, 6).to(getattr(torch, dtype)) for n in range(5)}
        start = 0 if rank < len(seeds) - 1 else 2
        slices = {name: [[4, 6], [start, 0]] for name in tensors}
        (where / f"rank_{rank}").mkdir(parents=True)
        file = where / f"rank_{rank}" / f"m_rank_{rank}-1_1.safetensors"
        save_file(tensors, file, {"paceline.slices": json.dumps(slices)})
    return where


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_different_tensors_of_one_name_are_joined_by_no_command(tmp_path: Path, dtype: str) -> None:
    different = _stages(tmp_path / "different", 0, 1, 2, dtype=dtype)
    message = r"layers\.0\.weight: ranks 0 and 1 saved different values under this name"
    for command in (transform, convert):
        with pytest.raises(PacelineError, match=message):
            command(TransformRequest(str(different), str(tmp_path / "out"), format="huggingface"))
    assert not (tmp_path / "out").exists()
    shown = CliRunner().invoke(application(["checkpoint"]), ["checkpoint", "inspect", str(different)])
    assert shown.exit_code == 0 and "ranks 0 and 1 saved different values" in " ".join(shown.output.split())
    convert(TransformRequest(str(different), str(tmp_path / "files"), format="ckpt"))  # each file by itself
    assert len(list((tmp_path / "files").rglob("*.ckpt"))) == 3


def test_replicas_that_rounding_drove_apart_are_joined(tmp_path: Path) -> None:
    same = _stages(tmp_path / "same", 0, 0, 2, dtype="bfloat16")
    transform(TransformRequest(str(same), str(tmp_path / "out"), format="huggingface"))
    assert list((tmp_path / "out").glob("*.safetensors"))


def test_a_launcher_that_names_only_the_local_rank() -> None:
    assert Ranks.from_environment({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}).rank == 1
    assert Ranks.from_environment({"LOCAL_RANK": "1", "RANK": "5", "WORLD_SIZE": "8"}).rank == 5
    assert Ranks.from_environment({"LOCAL_RANK": "1"}).rank == 0
