"""Stalls that happened once, or every few steps: a collective that took long in one step; and the finding for pauses of ranks."""

from __future__ import annotations

import numpy as np

from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Severity, Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.time_pattern import returns_regularly, time_pattern
from paceline.replay.replay import Costs

OUTLIER_SHARE = 0.1
"""A transfer is an outlier when it took this share of a step longer than its median …"""
OUTLIER_FACTOR = 3.0
"""… and this many times as long."""
ALIKE_SHARE = 0.75
"""Two stalls are one that returns if the shorter takes at least this share of the longer."""
FEWEST_STEPS = 4
"""Steps that a median needs."""


def one_off_stall(
    context: DiagnosisContext,
    rank_rows: list[int],
    columns: list[int],
    lost: float,
    *,
    min_severity: Severity,
    fixed: Costs | None = None,
) -> RuleFinding:
    """These ranks made these steps longer, by `lost` ms in all; `fixed` are the costs without it."""
    measured = float(np.max(context.replay.measured.step_times[columns])) / 1e6
    mean, steps = (
        float(np.mean(context.replay.base.step_times)) / 1e6,
        tuple(int(step) for step in context.timeline.steps[columns]),
    )
    stalled = np.isin(np.arange(len(context.timeline.steps)), columns)
    returns = returns_regularly(columns, len(context.timeline.steps)) and _enough_alike(context, columns)
    return RuleFinding(
        id="periodic-stall" if returns else "one-off-stall",
        subject=Subject(ranks=context.global_ranks(rank_rows), hosts=context.hosts_of(rank_rows), steps=steps),
        gain=PredictedGain(mean, mean - lost / len(context.timeline.steps), fixed),
        confidence=_confidence(context, columns, 1e6 * lost / len(columns)),
        chronic=False,
        when=time_pattern(stalled.tolist(), context.timeline.steps.tolist()),
        amount=Quantity(lost, "ms"),
        detail=Quantity(columns[1] - columns[0], "") if returns else None,
        evidence=(MeasuredValue("step_time", round(measured, 3), round(context.step_ms, 3), "ms"),),
        min_severity=min_severity,
    )


def _enough_alike(context: DiagnosisContext, columns: list[int]) -> bool:
    """What struck twice returns only if both took about as long."""
    times = context.replay.measured.step_times[columns] - np.min(context.replay.measured.step_times)
    return len(columns) > 2 or float(np.min(times)) >= ALIKE_SHARE * float(np.max(times))


def _confidence(context: DiagnosisContext, columns: list[int], lost: float) -> float:
    """Over steps: these are longer than typical others by what was lost in each, ns, and the others are not."""
    times = context.replay.measured.step_times
    others = np.delete(times, columns)
    typical = float(np.median(others)) if len(others) else context.step_ms * 1e6
    return nearer(times[columns], others, at=typical + lost, normal=typical)


def one_off_transfers(context: DiagnosisContext) -> list[RuleFinding]:
    """Collectives that once took much longer than the same one in other steps, although all members had arrived."""
    events, timeline = context.timeline.events, context.timeline
    if len(timeline.steps) < FEWEST_STEPS:
        return []
    long = np.flatnonzero(events.transfer > OUTLIER_SHARE * context.step_ms * 1e6)
    outliers = [instance for instance in long.tolist() if _is_outlier(context, instance)]
    findings = []
    step_of = timeline.step[events.first_row]
    for column in sorted({int(step_of[instance]) for instance in outliers}):
        here = [instance for instance in outliers if step_of[instance] == column]
        transfer = context.replay.costs.transfer.copy()
        transfer[here] = [_median_transfer(context, instance) for instance in here]
        fixed = context.replay.costs.with_transfer(transfer)
        after = context.replay.run(fixed).step_times
        lost = float(context.replay.base.step_times[column] - after[column]) / 1e6
        if lost >= OUTLIER_SHARE * context.step_ms:
            rank_rows = np.unique(events.rank[np.isin(events.instance, here)]).tolist()
            findings.append(one_off_stall(context, rank_rows, [column], lost, min_severity="low", fixed=fixed))
    return findings if len(findings) <= len(timeline.steps) // 3 else []


def _is_outlier(context: DiagnosisContext, instance: int) -> bool:
    typical, took = _median_transfer(context, instance), float(context.timeline.events.transfer[instance])
    return took > OUTLIER_FACTOR * typical and took - typical > OUTLIER_SHARE * context.step_ms * 1e6


def _median_transfer(context: DiagnosisContext, instance: int) -> float:
    """The median time of the same collective over the steps; what it took where there are too few."""
    events, timeline, row = context.timeline.events, context.timeline, int(context.timeline.events.first_row[instance])
    same = np.flatnonzero(
        (events.rank == events.rank[row])
        & (timeline.place == timeline.place[row])
        & (events.group_key == events.group_key[row])
    )
    times = events.transfer[events.instance[same]]
    return float(np.median(times)) if len(times) >= FEWEST_STEPS else float(events.transfer[instance])
