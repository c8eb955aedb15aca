"""Verdicts on real recordings of ../shared/fixtures, as an expert would give them; skipped without them.

Expected numbers are those of the recordings' publishers, or were worked out from the files (fixtures/real/README.md).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Diagnosis, Finding
from support.reader_helpers import FIXTURES, needs_fixtures

REAL = FIXTURES / "real"
SAYS_NOTHING_OF_THE_DEVICE = {
    "host-bound",
    "input-bound",
    "blocking-call",
    "memory-management",
    "slow-rank",
    "slow-operator",
}
NOT_RECORDED = [
    "hta/rank_non_gpu.json.gz",
    "hta/mtia_inference_rank_0.json.gz",
    "unread-formats/zoology_no_kernels_trace.json.gz",
]

pytestmark = needs_fixtures


@cache
def diagnosed(source: Path) -> Diagnosis:
    return paceline.diagnose(paceline.open(str(source)))


def ids(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings]


def evidence(finding: Finding) -> str:
    return " · ".join(f"{each.metric} {each.value}" for each in finding.evidence)


def loss(diagnosis: Diagnosis) -> dict[str, float]:
    """Share of the mean step, per cent."""
    mean = diagnosis.run.mean_step_ms
    assert mean
    return {part.cause: 100 * part.ms / mean for part in diagnosis.run.loss}


def test_a_loader_that_stalls_every_fourth_step_is_input() -> None:
    verdict = diagnosed(REAL / "param-resnet_kineto.json.gz")
    assert ids(verdict)[0] == "input-bound"
    assert verdict.findings[0].severity == "high"


@pytest.mark.parametrize("name", NOT_RECORDED)
def test_nothing_is_said_of_a_device_that_was_not_recorded(name: str) -> None:
    verdict = diagnosed(REAL / name)
    assert not SAYS_NOTHING_OF_THE_DEVICE & set(ids(verdict))
    assert any("nothing is reported about the device" in warning for warning in verdict.run.warnings)


def test_a_blocking_copy_is_named_with_its_place_in_the_program() -> None:
    first = diagnosed(REAL / "tracelens" / "sglang_Qwen3-8B_decode.json.gz").findings[0]
    assert first.id == "blocking-call"
    assert "hipMemcpyWithStream" in first.title
    assert "populate_from_forward_batch" in evidence(first)
    assert first.gain.step_ms_now - first.gain.step_ms_fixed == pytest.approx(463.06, rel=0.01)


def test_the_start_of_cuda_is_no_input() -> None:
    verdict = diagnosed(REAL / "hta" / "critical_path_alexnet.json.gz")
    assert "input-bound" not in ids(verdict)
    [start] = [finding for finding in verdict.findings if finding.id == "one-off-stall"]
    assert "cudaDeviceGetStreamPriorityRange" in evidence(start)
    assert start.severity == "low"  # nothing to repair
    assert "memory-management" in ids(verdict)  # cudaFree 6.5 s, cudaMalloc 2.0 s


def test_waiting_is_told_from_moving_in_all_to_all() -> None:
    """Five per rank; the last to arrive needs 7 to 10 µs, the others wait for it up to 7.6 ms."""
    context = DiagnosisContext(paceline.open(str(REAL / "param-dlrm-8ranks")))
    events = context.timeline.events
    rows = np.flatnonzero(events.op.astype(str) == "all_to_all")
    assert len(rows) == 5 * 8
    took, moving = events.duration[rows].sum(), events.transfer[events.instance[rows]].sum()
    assert took / 8e6 == pytest.approx(3.314 + 0.786 + 0.152 + 0.116 + 0.372, rel=0.01)
    assert moving <= 0.01 * took


def test_what_if_on_the_slow_half_of_a_pair_predicts_the_cured_half() -> None:
    """ResNet-50 with num_workers 0 and 4: the cured steps have a median of 126.7 ms; 118 to 127 is expected."""
    first = diagnosed(
        REAL / "kineto-tb_plugin" / "resnet50_num_workers_0.worker0.1623143089861.pt.trace.json.gz"
    ).findings[0]
    assert first.id == "input-bound"
    assert 118 <= first.gain.step_ms_fixed <= 127


def test_time_is_not_lost_twice() -> None:
    """PyTorch's own tool: 98.6 ms of kernels in steps of 177.6 ms, 33.4 % of them loading."""
    verdict = diagnosed(REAL / "kineto-tb_plugin" / "resnet50_num_workers_0.worker0.1623143089861.pt.trace.json.gz")
    assert verdict.run.best_step_ms == pytest.approx(100.5, rel=0.02)
    assert loss(verdict)["input-bound"] + loss(verdict).get("input", 0) == pytest.approx(33.4, abs=2)


@pytest.mark.parametrize("name", ["text-level1", "db-level1"])
def test_ascend_steps_wait_two_to_four_per_cent_for_input(name: str) -> None:
    """The loader is recorded: 3.3 to 4.4 ms of 150 ms; the rest of the time before the first kernel is the host's."""
    verdict = diagnosed(FIXTURES / "ascend-pytorch" / name)
    assert "input-bound" not in ids(verdict)
    run = paceline.open(str(FIXTURES / "ascend-pytorch" / name))
    run.load(["steps"])
    for (share,) in run.sql("SELECT data_wait / duration FROM steps").fetchall():
        assert 0.02 <= share <= 0.04


def test_a_rank_of_eight_says_who_was_not_recorded() -> None:
    verdict = diagnosed(REAL / "tracelens" / "mi300_resnet_act_checkpoint.json.gz")
    [missing] = [finding for finding in verdict.findings if finding.id == "data-incomplete"]
    assert missing.subject.ranks == (1, 2, 3, 4, 5, 6, 7)
