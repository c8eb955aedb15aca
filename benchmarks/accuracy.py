"""How often the true cause comes first, how often a healthy cluster alarms, and how far the predicted gain is off.

    python benchmarks/accuracy.py [--clusters 200] [--seed 1] [--verbose]

Clusters of 8 to 64 ranks, all layouts, all faults (some two at once), clock offsets and noise, from fixed seeds. A fault
that a layout cannot record (frequency in Kineto traces, hosts in flat MindInsight trees, …) is not asked of it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import paceline
from paceline.advice.engine import diagnose
from paceline.advice.finding import Finding
from paceline.simulate import KINDS, LAYOUTS, ClusterSpec, Truth, simulate

SHAPES = (
    (1, 8, 8, 1, 1), (1, 8, 4, 2, 1), (1, 8, 2, 2, 2), (2, 8, 4, 2, 2), (2, 8, 16, 1, 1), (2, 8, 2, 4, 2),
    (2, 4, 2, 1, 4), (4, 8, 4, 4, 2), (4, 8, 8, 2, 2), (8, 8, 8, 2, 4), (8, 8, 16, 4, 1),
)  # fmt: skip
# What a layout cannot tell: nobody can find it there.
SILENT: dict[str, frozenset[str]] = {
    "kineto": frozenset({"frequency-drop", "small-packets", "bandwidth-contention", "memory-pressure", "memory-imbalance",
                         "cpu-operators", "data-incomplete", "slow-host"}),
    "msprof": frozenset({"frequency-drop", "memory-pressure", "memory-imbalance", "small-packets", "bandwidth-contention",
                         "data-incomplete", "slow-link", "stage-imbalance", "pipeline-bubble", "slow-host", "input-bound"}),
}  # fmt: skip
_OLD = frozenset({"frequency-drop", "host-bound", "slow-host", "small-packets", "data-incomplete", "bandwidth-contention",
                  "memory-pressure", "stage-imbalance", "pipeline-bubble", "slow-link", "load-imbalance", "cpu-operators",
                  "slow-operator", "memory-imbalance", "comm-exposed", "input-bound"})  # fmt: skip
for _layout in ("mindinsight", "mindinsight-r13", "mindinsight-r21", "msadvisor"):
    SILENT[_layout] = _OLD
ACCEPTED = {"frequency-drop": {"slow-rank"}, "slow-operator": {"slow-rank"}}


@dataclass(frozen=True)
class Trial:
    layout: str
    spec: ClusterSpec
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    trial: Trial
    right: bool
    error: float | None
    said: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    results = []
    for trial in trials(options.clusters, options.seed):
        result = examine(trial)
        if result is None:
            continue  # this cluster cannot have this fault
        results.append(result)
        if options.verbose:
            print(line(result), flush=True)
    report(results, verbose=options.verbose)


def trials(count: int, seed: int) -> list[Trial]:
    random = np.random.default_rng(seed)
    layouts = list(LAYOUTS)
    kinds = [kind.id for kind in KINDS if kind.id != "clock-skew"]
    chosen = []
    while len(chosen) < count:
        hosts, devices, dp, tp, pp = SHAPES[int(random.integers(len(SHAPES)))]
        spec = ClusterSpec(hosts=hosts, devices=devices, dp=dp, tp=tp, pp=pp, steps=int(random.integers(4, 7)),
                           seed=int(random.integers(1 << 30)), detail_ranks=None if hosts * devices <= 16 else 8)  # fmt: skip
        layout = layouts[int(random.integers(len(layouts)))]
        possible = [kind for kind in kinds if kind not in SILENT.get(layout, frozenset())]
        faults = () if random.random() < 0.15 else (possible[int(random.integers(len(possible)))],)
        chosen.append(Trial(layout, spec, faults))
    return chosen


def examine(trial: Trial) -> Result | None:
    root = Path(tempfile.mkdtemp(prefix="paceline-accuracy-"))
    try:
        truth = simulate(root / "run", trial.spec, trial.faults, trial.layout)
        with paceline.open(root / "run", store=root / "store") as run:
            findings = diagnose(run).findings
    except paceline.UsageError:
        return None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return judge(trial, truth, findings)


def judge(trial: Trial, truth: Truth, findings: tuple[Finding, ...]) -> Result:
    serious = [finding for finding in findings if finding.severity in ("high", "medium")]
    said = "; ".join(
        f"{f.id} {f.subject.ranks or f.subject.stages or f.subject.operators} {f.gain.percent:.1f}%"
        for f in findings[:3]
    )
    if not trial.faults:
        return Result(trial, not serious, None, said)
    fault = truth.faults[0]
    if not findings:
        slow = truth.step_ms.median / truth.step_ms_healthy.median - 1
        return Result(trial, False, None, f"nothing (true slowdown {100 * slow:.1f} %)")
    first = findings[0]
    named = first.id == fault.id or first.id in ACCEPTED.get(fault.id, set())
    subject = fault.subject
    if named and subject.ranks and len(subject.ranks) <= 4 and fault.id not in ("load-imbalance", "jitter"):
        named = set(subject.ranks) == set(first.subject.ranks)
    error = None
    if named and fault.id not in ("one-off-stall", "memory-imbalance", "data-incomplete"):
        healthy = fault.step_ms_without.median
        error = abs(first.gain.step_ms_fixed - healthy) / healthy
    return Result(trial, named, error, said)


def report(results: list[Result], *, verbose: bool) -> None:
    broken = [result for result in results if result.trial.faults]
    healthy = [result for result in results if not result.trial.faults]
    errors = [result.error for result in broken if result.error is not None]
    print(
        f"{len(broken)} faulty clusters: the true cause comes first in {100 * sum(r.right for r in broken) / len(broken):.1f} %"
    )
    print(
        f"{len(healthy)} healthy clusters: no alarm in {100 * sum(r.right for r in healthy) / max(1, len(healthy)):.1f} %"
    )
    print(f"predicted step time after the fix: median error {100 * statistics.median(errors):.2f} % of {len(errors)}")
    missed = Counter((r.trial.faults or ("healthy",))[0] for r in results if not r.right)
    print("missed:", dict(missed.most_common()))
    for result in results:
        if not result.right and not verbose:
            print(line(result))


def line(result: Result) -> str:
    spec = result.trial.spec
    shape = f"{spec.world} ranks dp{spec.dp} tp{spec.tp} pp{spec.pp}"
    mark = "ok " if result.right else "NOT"
    return f"  {mark} {result.trial.layout:16} {shape:24} seed {spec.seed:10} {result.trial.faults}: {result.said}"


if __name__ == "__main__":
    main()
