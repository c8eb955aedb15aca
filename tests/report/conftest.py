"""A simulated run with a slow rank, a diagnosis of it in the public shape, and the report of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline import simulate
from paceline.report.data import ReportData, report_data
from paceline.run.run import Run

SPEC = simulate.ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=3, layers=4, micro_batches=4, seed=3)


def diagnosis(language: str) -> dict[str, Any]:
    """Two findings as DESIGN section 4 writes them: a rank and a link."""
    zh = language == "zh"
    subject: dict[str, list[Any]] = {name: [] for name in ("ranks", "hosts", "links", "operators", "stages", "steps")}
    rank = {
        "id": "slow-rank", "severity": "high", "confidence": 0.97, "chronic": True,
        "subject": subject | {"ranks": [5], "hosts": ["node2"]},
        "gain": {"step_ms_now": 412.0, "step_ms_fixed": 351.0, "percent": 14.8},
        "title": "5 号卡（主机 node2）计算慢 30 %" if zh else "Rank 5 (host node2): computing is 30 % slower than on the peers",
        "evidence": [{"metric": "own time a step", "value": 289.0, "peers": 227.0, "unit": "ms"}],
        "advice": ["比较频率" if zh else "Compare its clock with card 4"], "see": "kb/slow-rank",
    }  # fmt: skip
    link = {
        "id": "slow-link", "severity": "medium", "confidence": 0.91, "chronic": True,
        "subject": subject | {"links": [{"src": 0, "dst": 1, "transport": "HCCS"}]},
        "gain": {"step_ms_now": 412.0, "step_ms_fixed": 400.0, "percent": 2.9},
        "title": "链路 0 → 1 慢" if zh else "Link 0 → 1 (HCCS) runs at half its speed",
        "evidence": [{"metric": "bandwidth", "value": float("nan"), "peers": 11.8, "unit": "GB/s"}],
        "advice": [], "see": "kb/slow-link",
    }  # fmt: skip
    about = {"source": "x", "formats": ["ascend-text"], "ranks": 8, "hosts": 2, "steps": [2, 3],
             "step_ms": {"median": 412.0, "min": 400.0, "max": 420.0}, "missing_ranks": [],
             "warnings": ["node2_10004/trace_view.json: cut off"]}  # fmt: skip
    return {"schema": "paceline.diagnosis/1", "run": about, "findings": [rank, link]}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    root: Path = tmp_path_factory.mktemp("report")
    simulate.simulate(root / "run", SPEC, ["slow-rank:5:1.3"], "ascend-text")
    with Run(root / "run", store=root / "store") as opened:
        yield opened


@pytest.fixture(scope="session")
def report(run: Run) -> ReportData:
    return report_data(run, {"en": diagnosis("en"), "zh": diagnosis("zh")})
