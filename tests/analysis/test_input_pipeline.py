"""Which dataset operator is the bottleneck: MindInsight's four patterns, real pipelines, and damaged ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from hand_made import HandMade
from paceline.advice.engine import diagnose
from paceline.advice.present import as_json
from paceline.analysis.input_pipeline import (
    BUSY,
    PROCESSING,
    READING,
    ROOT,
    WAITING,
    Bottleneck,
    Stage,
    bottleneck,
    bottlenecks,
    late_part,
    late_parts,
)
from paceline.simulate import ClusterSpec, simulate
from reading import FIXTURES, needs_fixtures

PATTERNS = FIXTURES / "mindinsight-tests" / "tests" / "ut" / "profiler" / "analyser" / "resource"


def chain(*uses: float | None) -> list[Stage]:
    """Root first; each takes from the next."""
    return [Stage(i, f"Op{i}", i - 1 if i else None, 1, use, None) for i, use in enumerate(uses)]


@needs_fixtures
@pytest.mark.parametrize(
    ("rank", "op", "why"),
    [
        (0, (4, "Shuffle"), PROCESSING),
        (1, (1, "Shuffle"), PROCESSING),
        (2, (0, "Batch"), ROOT),
        (3, (2, "TFReader"), READING),
    ],
)
def test_the_four_patterns(rank: int, op: tuple[int, str], why: str, tmp_path: Path) -> None:
    profiler = tmp_path / "run" / "profiler"
    profiler.mkdir(parents=True)
    shutil.copy(PATTERNS / f"minddata_pipeline_raw_{rank}.csv", profiler)
    (profiler / f"step_trace_raw_{rank}_detail_time.csv").write_text(
        "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail\n1,0,100,100,10,90,10,80,10\n"
    )
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        found = bottlenecks(run)
    assert {rank: ((one.stage.op_id, one.stage.op), one.why) for rank, one in found.items()} == {rank: (op, why)}


@needs_fixtures
def test_a_real_pipeline_is_held_up_by_the_operator_between_full_and_empty(tmp_path: Path) -> None:
    with paceline.open(FIXTURES / "mindspore-2.10-cpu" / "minddata_cpu", store=tmp_path) as run:
        (found,) = bottlenecks(run).values()
    assert (found.stage.op, found.why) == ("Map", PROCESSING)
    assert found.input_use == pytest.approx(0.9169, abs=1e-3) and found.stage.use == 0
    assert found.stage.cpu_per_worker == pytest.approx(3.5) and found.workers_are == WAITING


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ((None, 0.85, 0.9), (0, ROOT)),
        ((None, 0.1, 0.25), (1, PROCESSING)),
        ((None, 0.1, 0.19), (2, READING)),
        ((None, 0.55, 0.62), None),
        ((None, 0.1, None, 0.9), (1, PROCESSING)),  # an operator without a queue runs in its consumer's thread
        ((None, None), None),
        ((None,), None),
        ((), None),
    ],
)
def test_thresholds(uses: tuple[float | None, ...], expected: tuple[int, str] | None) -> None:
    found = bottleneck(chain(*uses))
    assert (found and (found.stage.op_id, found.why)) == expected


@pytest.mark.parametrize(
    ("cpu", "workers", "expected"), [(380, 4, BUSY), (60, 4, WAITING), (15, 1, None), (50, 1, None), (None, 4, None)]
)
def test_workers_are_busy_or_wait(cpu: float | None, workers: int, expected: str | None) -> None:
    assert Bottleneck(Stage(1, "Map", 0, workers, 0.0, cpu), PROCESSING, 1.0).workers_are == expected


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6), st.none() | st.floats(0, 1)), max_size=7))
def test_pipelines_joined_in_circles_end(rows: list[tuple[int, int | None, float | None]]) -> None:
    bottleneck([Stage(op_id, "Op", parent, 1, use, None) for op_id, parent, use in rows])


def test_empty_queues_tell_processing_from_sending() -> None:
    assert late_part({"device_queue": [0, 0, 3, 3, 3], "get_next": [0]}) == "processing"
    assert late_part({"device_queue": [0, 3, 3, 3], "get_next": [1, 0]}) == "sending"
    assert late_part({"device_queue": [0, 3, 3, 3], "get_next": [1, 1]}) is None
    rows = [{"rank": 1, "step": step, "queue": "device_queue", "size": size} for step, size in enumerate((0, 0, 5))]
    assert late_parts(HandMade(input_steps=rows)) == {1: "processing"}


def test_an_input_bound_finding_names_the_operator_in_both_languages(tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=1, devices=4, tp=1, pp=1, steps=4, seed=3)
    simulate(tmp_path / "run", spec, ["input-bound"], "mindinsight")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        diagnosis = diagnose(run)
    assert diagnosis.findings[0].id == "input-bound"
    english, chinese = (as_json(diagnosis, language)["findings"][0]["evidence"] for language in ("en", "zh"))
    told = {row["metric"]: row["value"] for row in english}
    assert told["bottleneck Map (2): output queue filled"] == 0 and told["its input queue"] > 90
    assert told["CPU of one of its workers"] == pytest.approx(95)
    assert all(re.search(r"[\u4e00-\u9fff]", row["metric"]) for row in chinese)
