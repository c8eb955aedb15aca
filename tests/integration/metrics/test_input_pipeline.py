"""Which dataset operator is the bottleneck: MindInsight's four patterns and real pipelines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import paceline
from paceline.core.i18n import LANGUAGES
from paceline.diagnosis.diagnose import diagnose
from paceline.metrics.input_pipeline import PROCESSING, READING, ROOT, bottlenecks
from paceline.simulate import ClusterSpec, simulate
from support.reader_helpers import FIXTURES, needs_fixtures

PATTERNS = FIXTURES / "mindinsight-tests" / "tests" / "ut" / "profiler" / "analyser" / "resource"


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
    assert found.stage.cpu_per_worker == pytest.approx(3.5)


def test_an_input_bound_finding_names_the_operator_in_both_languages(tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=1, devices=4, tp=1, pp=1, steps=4, seed=3)
    simulate(tmp_path / "run", spec, ["input-bound"], "mindinsight")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        english, chinese = (diagnose(run, language=language).findings[0] for language in LANGUAGES)
    assert english.id == "input-bound"
    found = {evidence.key: evidence for evidence in english.evidence}
    assert found["bottleneck_output_queue"].metric == "bottleneck Map (2): output queue filled"
    assert found["bottleneck_output_queue"].value == 0
    assert (found["bottleneck_input_queue"].value or 0) > 90
    assert found["bottleneck_worker_cpu"].value == pytest.approx(95)
    assert all(re.search(r"[\u4e00-\u9fff]", evidence.metric) for evidence in chinese.evidence)
