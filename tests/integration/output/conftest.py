"""A simulated run with a slow rank, a diagnosis of it in the public shape, and the report of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import simulate
from paceline.core.i18n import LANGUAGES, Language
from paceline.diagnosis.finding import (
    Diagnosis,
    DirectedLink,
    Evidence,
    Finding,
    Gain,
    RunFacts,
    StepTimes,
    Subject,
)
from paceline.output.report_data import ReportData, report_data
from paceline.run.run import Run

SPEC = simulate.ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=3, layers=4, micro_batches=4, seed=3)


def diagnosis(language: Language) -> Diagnosis:
    """Two findings: a rank and a link."""
    zh = language == "zh"
    rank = Finding(
        id="slow-rank",
        severity="high",
        confidence=0.97,
        chronic=True,
        subject=Subject(ranks=(5,), hosts=("node2",)),
        gain=Gain(412.0, 351.0, 14.8, 1.174),
        title="5 号卡（主机 node2）计算慢 30 %"
        if zh
        else "Rank 5 (host node2): computing is 30 % slower than on the peers",
        evidence=(Evidence("self time per step", 289.0, 227.0, "ms", "self_time"),),
        advice=("比较频率" if zh else "Compare its clock with card 4",),
        see="kb/slow-rank",
    )
    link = Finding(
        id="slow-link",
        severity="medium",
        confidence=0.91,
        chronic=True,
        subject=Subject(links=(DirectedLink(0, 1, "HCCS"),)),
        gain=Gain(412.0, 400.0, 2.9, 1.03),
        title="链路 0 → 1 慢" if zh else "Link 0 → 1 (HCCS) runs at half its speed",
        evidence=(Evidence("bandwidth", float("nan"), 11.8, "GB/s", "bandwidth"),),
        advice=(),
        see="kb/slow-link",
    )
    facts = RunFacts(
        source="x",
        formats=("ascend-text",),
        ranks=8,
        hosts=2,
        steps=(2, 3),
        step_ms=StepTimes(412.0, 400.0, 420.0),
        missing_ranks=(),
        warnings=("node2_10004/trace_view.json: cut off",),
    )
    return Diagnosis(run=facts, findings=(rank, link))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    root: Path = tmp_path_factory.mktemp("report")
    simulate.simulate(root / "run", SPEC, ["slow-rank:5:1.3"], "ascend-text")
    with Run(root / "run", store=root / "store") as opened:
        yield opened


@pytest.fixture(scope="session")
def report(run: Run) -> ReportData:
    return report_data(run, {language: diagnosis(language) for language in LANGUAGES})
