"""Checkpoints saved and transformed by MindSpore 2.10: Paceline writes the same files, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.inspect import differences
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.transform import TransformRequest, transform
from paceline.checkpoint.verify import verify
from paceline.core.errors import PacelineError
from support.reader_helpers import FIXTURES, needs_fixtures

pytestmark = needs_fixtures
MADE = FIXTURES / "mindspore-2.10-cpu"
SMALL = MADE / "ckpt_small"


@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
@pytest.mark.parametrize(
    ("source", "before", "after", "target"),
    [
        ("src4", "s4.ckpt", "s2.ckpt", "dst2"),
        ("src4", "s4.json", None, "dst1"),
        ("dst2", "s2.ckpt", "s4.json", "dst4"),
        ("dst1", None, "s4.ckpt", "dst4b"),
        ("dst2", "s2.ckpt", None, "dst1b"),
    ],
)
def test_the_same_files(tmp_path: Path, kind: str, source: str, before: str, after: str, target: str) -> None:
    strategies = [str(SMALL / name) if name else None for name in (before, after)]
    transform(TransformRequest(str(SMALL / kind / source), str(tmp_path), *strategies, prefix="net_"))
    made = sorted(tmp_path.rglob(f"*.{kind}"))
    assert len(made) == len(list((SMALL / kind / target).rglob(f"*.{kind}")))
    for path in made:
        assert path.read_bytes() == (SMALL / kind / target / path.relative_to(tmp_path)).read_bytes()


def test_stages_merge_as_mindspore_merges_them() -> None:
    ours, theirs = read_strategy(str(MADE / "ckpt_pp" / "strat")), read_strategy(str(MADE / "ckpt_pp" / "merged.ckpt"))
    assert ours is not None and theirs is not None
    assert ours.stages == theirs.stages


def test_the_missing_rank_of_a_pipeline_is_named(tmp_path: Path) -> None:
    request = TransformRequest(str(MADE / "ckpt_pp" / "src"), str(tmp_path), str(MADE / "ckpt_pp" / "strat"))
    with pytest.raises(PacelineError, match="the checkpoint of rank 3 is missing"):
        transform(request)


def test_verify_finds_mindspores_bug_with_safetensors_080() -> None:
    wrong = MADE / "ckpt_small_CORRUPT_safetensors080" / "safetensors" / "dst2"
    with open_listing(str(SMALL / "safetensors" / "src4")) as a, open_listing(str(wrong)) as b:
        right = open_checkpoint(a, read_strategy(str(SMALL / "s4.ckpt")))
        found = list(differences(right, open_checkpoint(b, read_strategy(str(SMALL / "s2.ckpt")))))
    assert [each.name for each in found] == ["w2"]


@pytest.mark.parametrize("file", ["ckpt_pp/fmt/x.ckpt", "model_ckpt/a", "model_ckpt/b"])
def test_real_files_verify(file: str) -> None:
    with open_listing(str(MADE / file)) as place:
        verdict = verify(place, None)
    assert not verdict.problems
    assert verdict.tensors > 1


def test_unified_safetensors_are_full_weights(tmp_path: Path) -> None:
    with (
        open_listing(str(SMALL / "safetensors" / "unified")) as a,
        open_listing(str(SMALL / "safetensors" / "dst1")) as b,
    ):
        assert not list(differences(open_checkpoint(a), open_checkpoint(b)))
