"""From which size on a fault is named: one fault at a time, made smaller and rarer, on clusters of 8 to 32 ranks.

    python benchmarks/accuracy.py --sweep [--layout NAME] [--jobs 2]

A network card and a link at a quarter of their speed with 2 to 8 hosts; a rank that takes 1.5 times as long in n of 10 steps;
input that is late every n steps; a rank that is slower by 2 % and more; and healthy runs, which must be silent. A fault is
named if its cause, or one that says the same of a shorter time, comes first with exactly its ranks, host or link.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Finding, Subject
from paceline.simulate import ClusterSpec, simulate

RANK, LATE_MS = 5, 120
OFTEN, SOMETIMES = frozenset({"slow-rank"}), frozenset({"slow-rank", "one-off-stall", "periodic-stall"})
HEALTHY_SEEDS = 6


@dataclass(frozen=True)
class Point:
    what: str
    layout: str
    spec: ClusterSpec
    fault: str
    """Empty: healthy."""
    ids: frozenset[str]
    """Causes that name it."""


@dataclass(frozen=True)
class Outcome:
    point: Point
    named: bool
    said: str


def sweep(layout: str, jobs: int) -> int:
    """Print one line per point and return how many went wrong."""
    points = list(sweep_points(layout))
    missed = 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(examine_point, points):
            missed += not outcome.named
            print(f"  {'ok ' if outcome.named else 'NOT'} {outcome.point.what:44} {outcome.said}", flush=True)
    print(f"{len(points) - missed} of {len(points)} as they should be ({layout})")
    return missed


def sweep_points(layout: str) -> Iterator[Point]:
    def spec(**more: int) -> ClusterSpec:
        shape = {"hosts": 2, "devices": 4, "tp": 1, "pp": 1, "micro_batches": 2, "layers": 4, "steps": 5, **more}
        return ClusterSpec(dp=shape["hosts"] * shape["devices"], **shape)  # type: ignore[arg-type]  # only numbers

    if layout != "kineto":  # which has no links
        for hosts in (2, 3, 4, 8):
            for name, kind in (("network card", "slow-nic"), ("link", "slow-link")):
                fault = f"{kind}:{'1' if kind == 'slow-nic' else ''}:4"
                yield Point(f"{name} at 1/4, {hosts} hosts", layout, spec(hosts=hosts), fault, frozenset({kind}))
    for steps in range(1, 10):
        fault = f"slow-rank:{RANK}:1.5:some{steps}"
        ids = SOMETIMES if steps < 6 else OFTEN
        yield Point(f"rank × 1.5 in {steps} of 10 steps", layout, spec(steps=10), fault, ids)
    for every in range(1, 7):
        pattern = f":every{every}" if every > 1 else ""
        fault = f"input-bound:{RANK}:{LATE_MS}{pattern}"
        yield Point(f"input late every {every} steps", layout, spec(steps=12), fault, frozenset({"input-bound"}))
    for percent in (2, 3, 5, 10):
        fault = f"slow-rank:{RANK}:{1 + percent / 100:g}"
        yield Point(f"rank slower by {percent} %", layout, spec(steps=10), fault, OFTEN)
    for seed in range(HEALTHY_SEEDS):
        yield Point(f"healthy, seed {seed}", layout, spec(steps=10, seed=seed), "", frozenset())


def examine_point(point: Point) -> Outcome:
    root = Path(tempfile.mkdtemp(prefix="paceline-sweep-"))
    try:
        truth = simulate(root / "run", point.spec, (point.fault,) if point.fault else (), point.layout)
        with paceline.open(root / "run", store=root / "store") as run:
            findings = diagnose(run).findings
    finally:
        shutil.rmtree(root, ignore_errors=True)
    said = "; ".join(f"{one.id} {one.gain.percent:.1f} % ({one.severity})" for one in findings[:2]) or "nothing"
    if not point.fault:
        return Outcome(point, not any(one.severity in ("high", "medium") for one in findings), said)
    return Outcome(point, bool(findings) and is_named(findings[0], truth.faults[0].subject, point.ids), said)


def is_named(finding: Finding, truth: Subject, ids: frozenset[str]) -> bool:
    """The cause with exactly its subject; of two hosts either network card explains what both see."""
    if finding.id not in ids:
        return False
    if truth.links:
        return _undirected(truth) == _undirected(finding.subject)
    if finding.id == "slow-nic":
        return bool(set(truth.hosts) & set(finding.subject.hosts)) and len(finding.subject.hosts) <= 2
    return set(truth.ranks) == set(finding.subject.ranks)


def _undirected(subject: Subject) -> set[frozenset[int]]:
    return {frozenset((link.src, link.dst)) for link in subject.links}


def shown_layouts(asked: str | None) -> Sequence[str]:
    return (asked,) if asked else ("ascend-text", "kineto")
