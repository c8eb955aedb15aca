"""A first look: the same with and without a store, and it names who is slow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.core.errors import UsageError
from paceline.simulate import ClusterSpec, simulate
from support.reader_helpers import FIXTURES, needs_fixtures

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=3, layers=2, micro_batches=2)
PIPELINE = ClusterSpec(hosts=1, devices=4, dp=2, tp=1, pp=2, steps=3, layers=2, micro_batches=2)


@pytest.mark.parametrize("spec", [SPEC, PIPELINE], ids=["one stage", "two stages"])
def test_a_first_look_is_the_same_with_and_without_a_store(spec: ClusterSpec, tmp_path: Path) -> None:
    simulate(tmp_path / "run", spec, ["slow-rank:1:1.3"], "kineto")
    look = paceline.breakdown(tmp_path / "run")
    stored = paceline.breakdown(tmp_path / "run", store=tmp_path / "store")
    assert replace(look, parts={}) == replace(stored, parts={})
    assert {name: pytest.approx(column) for name, column in look.parts.items()} == stored.parts
    assert [slow.rank for slow in look.slow] == [1]
    assert look.slow[0].excess == pytest.approx(0.3, abs=0.03)


def test_parts_add_up_to_the_step_and_are_those_of_the_steps_table(tmp_path: Path) -> None:
    simulate(tmp_path / "run", SPEC, ["slow-rank:2:1.5"], "ascend-text")
    look = paceline.breakdown(tmp_path / "run", store=tmp_path / "store")
    for step, *parts in zip(*look.parts.values(), strict=True):
        assert step == pytest.approx(sum(parts))
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        means = run.sql("SELECT avg(exposed) / 1e6 FROM steps GROUP BY rank ORDER BY rank").fetchall()
    assert look.parts["communication"] == pytest.approx([mean for (mean,) in means])
    assert [slow.rank for slow in look.slow] == [2]


@needs_fixtures
def test_a_trace_without_a_device_is_read_through_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    look = paceline.breakdown(FIXTURES / "mindspore-2.10-cpu" / "kineto")
    assert look.ranks == (0, 1) and look.compared == 2


@needs_fixtures
def test_a_healthy_pair_has_no_slow_rank_and_neither_duckdb_nor_a_store_is_needed(tmp_path: Path) -> None:
    script = (
        "import json, sys, paceline; look = paceline.breakdown(sys.argv[1]);"
        "print(json.dumps([look.ranks, look.steps, look.compared, look.slow, 'duckdb' in sys.modules]))"
    )
    command = [sys.executable, "-c", script, str(FIXTURES / "kineto" / "hta-2-ranks")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"PACELINE_CACHE": str(tmp_path)})
    assert json.loads(said.stdout) == [[0, 1], [2, 2], 2, [], False]
    assert not list(tmp_path.iterdir())


def test_a_source_without_a_profile_is_refused_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no profile found"):
        paceline.breakdown(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        paceline.breakdown(tmp_path / "nowhere")
