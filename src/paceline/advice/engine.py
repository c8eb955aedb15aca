"""Diagnosis: ask every rule, rank what they find, and say what was examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Diagnosis, Finding, ranked
from paceline.advice.hardware import Hardware
from paceline.advice.hidden import priced_behind
from paceline.advice.input_evidence import with_bottleneck
from paceline.advice.rules import RULES, Rule
from paceline.analysis.flops import rank_flops
from paceline.errors import UsageError
from paceline.run.run import Run

WORTH_SAYING = 0.3
"""Per cent of gain below which a finding without a severity of its own is left out."""


def diagnose(
    run: Run,
    *,
    steps: tuple[int, ...] | None = None,
    hardware: Hardware | None = None,
    own_rules: Sequence[Rule] = (),
) -> Diagnosis:
    """Examine a run, or some of its steps; rules of the user's own are asked after ours."""
    run.load(["ranks", "groups", "steps", "collectives", "links", "packets", "kernels", "counters", "ranks_memory",
              "host_calls", "input_pipeline"])  # fmt: skip
    case = Case(run, steps, hardware=hardware)
    if not len(case.line.steps):
        raise UsageError(
            f"{run.source}: no step and no collective was recorded" + (" in these steps" if steps else ""),
            hint="which there are: paceline show SOURCE steps" if steps else "record at least one whole step",
        )
    findings = priced_behind(case, [finding for rule in (*RULES, *own_rules) for finding in rule(case)])
    said = [_addressed(with_bottleneck(case, finding), case) for finding in _worth_saying(findings)]
    return Diagnosis(_about(case), ranked(said), case.replay.residual)


def _worth_saying(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if _is_worth_saying(finding)]


def _is_worth_saying(finding: Finding) -> bool:
    """Who wrote a rule of their own wants to hear from it."""
    return finding.gain.percent >= WORTH_SAYING or finding.at_least != "info" or finding.entry is not None


def _addressed(finding: Finding, case: Case) -> Finding:
    everybody = len(case.places) > 1 and {place.rank for place in case.places} <= set(finding.subject.ranks)
    return replace(finding, everybody=everybody)


def _mfu(case: Case) -> float | None:
    """Median over ranks, None where the cards' peak rate or their work is unknown."""
    if case.hardware.peak_rate is None:
        return None
    chosen = f"step IN ({', '.join(map(str, case.line.steps.tolist()))})"
    known = rank_flops(case.run, chosen, case.hardware.peak_rate).numbers["mfu"]
    return round(float(np.median(known)), 4) if len(known) else None


def _about(case: Case) -> dict[str, Any]:
    run = case.run
    measured = case.replay.measured.step_times / 1e6
    missing = [row[0] for row in case.rows("SELECT rank FROM ranks WHERE format IS NULL ORDER BY rank")]
    return {
        "source": str(run.source),
        "formats": run.formats,
        "ranks": len(case.places),
        "hosts": len({place.host for place in case.places if place.host}),
        "steps": case.line.steps.tolist(),
        "step_ms": {
            "median": round(float(np.median(measured)), 3) if len(measured) else None,
            "min": round(float(np.min(measured)), 3) if len(measured) else None,
            "max": round(float(np.max(measured)), 3) if len(measured) else None,
        },
        "mfu": _mfu(case),
        "missing_ranks": missing,
        "warnings": [str(warning) for warning in run.warnings],
    }
