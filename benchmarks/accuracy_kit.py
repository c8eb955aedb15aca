"""The diagnosis on clusters that nobody of this project simulated: the independent kit in ../shared/kit.

    python benchmarks/accuracy_kit.py [--generated 100] [--seed 1] [--layout NAME] [--verbose] [--check]

Its fixed suite and, with --generated, as many drawn cases are diagnosed and judged by the kit's own scorer. Printed by layout
and by fault: how often the cause comes first with its subject, false alarms, error of the predicted step (median and nine
tenths), and, over all findings above `info` that come first, how often findings of each confidence are right. `--check`
exits with 1 below what is promised for the fixed suite. Skipped, saying so, where the kit is absent.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_calibration import print_calibration

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("PACELINE_FIXTURES") or ROOT.parent / "shared" / "fixtures").parent
KIT = SHARED / "kit"
LOCALISED, FALSE_ALARMS, GAIN_ERROR = 0.97, 0, 0.05


@dataclass(frozen=True)
class Verdict:
    case: str
    layout: str
    faults: tuple[str, ...]
    localised: bool | None
    """None: nothing to find."""
    alarms: int
    gain_error: float | None
    confidence: float | None
    said: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=("ascend", "mindinsight", "msadvisor", "kineto"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the fixed suite is below what is promised")
    options = parser.parse_args()
    if not (KIT / "score.py").exists():
        print(f"skipped: the independent kit is not at {KIT}")
        return
    with tempfile.TemporaryDirectory(prefix="paceline-kit-") as scratch:
        fixed = _suite(Path(scratch) / "fixed", ["cases.py"], options.jobs, options.layout)
        _print("fixed suite", fixed, options.verbose)
        if options.generated:
            made = ["generate.py", "--count", str(options.generated), "--seed", str(options.seed)]
            drawn = _suite(Path(scratch) / "drawn", made, options.jobs, options.layout)
            _print(f"{options.generated} generated cases, seed {options.seed}", drawn, options.verbose)
    if options.check and (problems := _shortfalls(fixed)):
        sys.exit("accuracy on the kit: " + "; ".join(problems))


def _suite(target: Path, maker: Sequence[str], jobs: int, layout: str | None) -> list[Verdict]:
    subprocess.run(
        [sys.executable, str(KIT / maker[0]), str(target), *maker[1:]], check=True, stdout=subprocess.DEVNULL
    )
    truth: dict[str, dict[str, Any]] = json.loads((target / "truth.json").read_text())
    chosen = {case: facts for case, facts in truth.items() if layout in (None, facts["layout"])}
    judge = _scorer()
    with ThreadPoolExecutor(jobs) as pool:
        diagnoses = pool.map(lambda case: _diagnose(target, case), chosen)
        return [_verdict(judge, case, chosen[case], said) for case, said in zip(chosen, diagnoses, strict=True)]


def _scorer() -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    specification = importlib.util.spec_from_file_location("kit_score", KIT / "score.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    judge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = module.judge
    return judge


def _diagnose(target: Path, case: str) -> dict[str, Any]:
    out = target / f"{case}.json"
    environment = {**os.environ, "PACELINE_CACHE": str(target / "cache")}
    command = [sys.executable, "-m", "paceline", "diagnose", str(target / "cases" / case), "--json", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not out.exists():
        print(f"{case}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return {"findings": []}
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _verdict(
    judge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    case: str,
    facts: dict[str, Any],
    said: dict[str, Any],
) -> Verdict:
    row = judge(facts, said)
    first = next((f for f in said["findings"] if f["severity"] != "info" and f["id"] != "data-incomplete"), None)
    return Verdict(
        case,
        facts["layout"],
        tuple(fault["fault"] for fault in facts["faults"]),
        row["localised"],
        row["alarms"] if facts["healthy"] else 0,
        row["gain_error"],
        first["confidence"] if first else None,
        f"{first['id']}: {first['title']}" if first else "nothing",
    )


def _print(title: str, verdicts: list[Verdict], verbose: bool) -> None:
    for verdict in verdicts:
        if verbose or verdict.localised is False or verdict.alarms:
            print(
                f"  {verdict.case} {verdict.layout:11} {'+'.join(verdict.faults) or 'healthy':28} {verdict.said}",
                flush=True,
            )
    print(f"\n{title:26}  cause first    false alarms   error of the predicted step: median, nine tenths")
    for key, group in [
        *_grouped(verdicts, lambda verdict: verdict.layout),
        *_grouped(verdicts, lambda verdict: "+".join(verdict.faults) or "healthy"),
        ("all", verdicts),
    ]:
        asked = [verdict for verdict in group if verdict.localised is not None]
        healthy = [verdict for verdict in group if verdict.localised is None or not verdict.faults]
        errors = [100 * verdict.gain_error for verdict in group if verdict.gain_error is not None]
        spread = f"{np.quantile(errors, 0.5):6.1f} %  {np.quantile(errors, 0.9):6.1f} %" if errors else ""
        right, alarms = (
            sum(bool(verdict.localised) for verdict in asked),
            sum(bool(verdict.alarms) for verdict in healthy),
        )
        print(f"{key:26}  {right:4} of {len(asked):3}    {alarms:4} of {len(healthy):3}      {spread}")
    print_calibration(
        [(v.confidence, bool(v.localised)) for v in verdicts if v.confidence is not None and v.localised is not None]
    )


def _grouped(verdicts: Iterable[Verdict], key: Callable[[Verdict], str]) -> list[tuple[str, list[Verdict]]]:
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        groups[key(verdict)].append(verdict)
    return sorted(groups.items())


def _shortfalls(verdicts: list[Verdict]) -> list[str]:
    asked = [verdict for verdict in verdicts if verdict.localised is not None]
    found = sum(bool(verdict.localised) for verdict in asked)
    alarms = sum(bool(verdict.alarms) for verdict in verdicts)
    errors = [verdict.gain_error for verdict in verdicts if verdict.gain_error is not None]
    problems = []
    if found < LOCALISED * len(asked):
        problems.append(f"the cause comes first in {found} of {len(asked)} cases")
    if alarms > FALSE_ALARMS:
        problems.append(f"{alarms} healthy cases alarm")
    if np.quantile(errors, 0.9) > GAIN_ERROR:
        problems.append(f"nine tenths of the predicted steps are within {100 * np.quantile(errors, 0.9):.1f} %")
    return problems


if __name__ == "__main__":
    main()
