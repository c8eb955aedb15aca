"""Devices that are idle because the host is held up by one call: memory comes and goes, a copy blocks, the runtime starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import agreement
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.diagnosis.rules.one_off import one_off_stall
from paceline.metrics.idle_causes import IdleCall, IdleCause, idle_calls
from paceline.replay.fixes import reduce_self_time

LEAST_SHARE = 0.03
"""Of the step: what may be left without a word (see docs/diagnosis.md)."""
MOST_NAMED = 3
NOT_LAUNCHING: tuple[IdleCause, ...] = ("memory", "blocking", "start")
"""Idle time in such calls is not the host launching too slowly."""


@rule(priority=85)
def held_up_host(context: DiagnosisContext) -> list[RuleFinding]:
    calls = idle_calls(context.run, context.performance.steps.tolist())
    found = [
        _held_up(context, "memory-management", "memory", calls),
        _held_up(context, "blocking-call", "blocking", calls),
        _start(context, calls),
    ]
    return [finding for finding in found if finding]


def idle_by_cause(context: DiagnosisContext, calls: Sequence[IdleCall], causes: Sequence[IdleCause]) -> Floats:
    """ns, ranks × steps; never more than the device was idle, less what input accounts for."""
    result = np.zeros(context.timeline.known.shape)
    row_of = {info.rank: row for row, info in enumerate(context.ranks)}
    column_of = {int(step): column for column, step in enumerate(context.timeline.steps.tolist())}
    for call in calls:
        if call.cause in causes and call.rank in row_of and call.step in column_of:
            result[row_of[call.rank], column_of[call.step]] += call.time
    return np.minimum(result, np.maximum(0.0, np.nan_to_num(idle_outside_input(context))))


def idle_outside_input(context: DiagnosisContext) -> Floats:
    """ns, ranks × steps, nan where unknown: the device does nothing, and not because input is late.

    Where both input and the time before the first device work were recorded, the first is part of the second. Some
    recordings' `free` begins behind it, that of others holds it: never is more idle than the step leaves.
    """
    free, begin = context.matrix("free"), np.nan_to_num(context.matrix(INPUT_WAIT))
    before = context.matrix("preparing") - context.matrix("data_wait")
    busy = context.matrix("computing") + context.matrix("exposed")
    left = np.maximum(0.0, context.matrix("duration") - busy - begin)
    return np.where(np.isnan(before), free - begin, np.fmin(free + np.maximum(0.0, before), left))


def _held_up(context: DiagnosisContext, id: str, cause: IdleCause, calls: Sequence[IdleCall]) -> RuleFinding | None:
    """A finding about the ranks whose mean step loses LEAST_SHARE or more to calls of a cause."""
    less, rank_rows = _affected(context, cause, calls)
    if not rank_rows:
        return None
    named = _costliest(context, cause, rank_rows, calls)
    return RuleFinding(
        id=id,
        subject=Subject(ranks=context.global_ranks(rank_rows), hosts=context.hosts_of(rank_rows)),
        gain=context.mean_gain(reduce_self_time(context.replay, context.replay.costs, less)),
        confidence=_confidence(context, less[rank_rows]),
        amount=Quantity(100 * float(_mean_shares(context, less)[rank_rows].mean()), "%"),
        detail=named[0][0].name,
        evidence=(
            MeasuredValue("idle_in_calls", round(float(less[rank_rows].mean()) / 1e6, 3), unit="ms_per_step"),
            *(_call_evidence("idle_in_call", call, time / (len(rank_rows) * less.shape[1])) for call, time in named),
        ),
    )


def _start(context: DiagnosisContext, calls: Sequence[IdleCall]) -> RuleFinding | None:
    """The runtime starts and code is loaded: once, so that nothing is to be repaired."""
    less, rank_rows = _affected(context, "start", calls)
    if not rank_rows:
        return None
    columns = np.flatnonzero(less[rank_rows].max(axis=0) >= LEAST_SHARE * context.step_ms * 1e6).tolist()
    fixed = reduce_self_time(context.replay, context.replay.costs, less)
    lost = float((context.replay.base.step_times - context.replay.run(fixed).step_times).sum()) / 1e6
    stall = one_off_stall(context, rank_rows, columns, lost, min_severity="low", fixed=fixed)
    named = _costliest(context, "start", rank_rows, calls)
    evidence = (_call_evidence("start_of_runtime", call, time / len(rank_rows), unit="ms") for call, time in named)
    return replace(stall, max_severity="low", evidence=(*stall.evidence, *evidence))


def _affected(context: DiagnosisContext, cause: IdleCause, calls: Sequence[IdleCall]) -> tuple[Floats, list[int]]:
    """Idle time of this cause, ns, ranks × steps, and the rows of the ranks that lose LEAST_SHARE of their steps to it."""
    less = idle_by_cause(context, calls, [cause])
    affected = _mean_shares(context, less) >= LEAST_SHARE
    return np.where(affected[:, None], less, 0.0), np.flatnonzero(affected).tolist()


def _mean_shares(context: DiagnosisContext, times: Floats) -> Floats:
    """Of all steps of each rank: sum / sum, so that what happens in few steps counts as much as it costs."""
    whole = np.nan_to_num(context.matrix("duration")).sum(axis=1)
    shares: Floats = np.divide(times.sum(axis=1), whole, out=np.zeros(len(times)), where=whole > 0)
    return shares


def _confidence(context: DiagnosisContext, less: Floats) -> float:
    """That the next step has it too."""
    with_it = int(np.count_nonzero(less.mean(axis=0) >= LEAST_SHARE / 2 * context.step_ms * 1e6))
    return agreement(with_it, less.shape[1])


def _costliest(
    context: DiagnosisContext, cause: IdleCause, rank_rows: list[int], calls: Sequence[IdleCall]
) -> list[tuple[IdleCall, float]]:
    """The calls of most idle time by place of the program, with that time, ns."""
    ranks = context.global_ranks(rank_rows)
    time: dict[tuple[str, str | None, str | None], float] = defaultdict(float)
    first: dict[tuple[str, str | None, str | None], IdleCall] = {}
    for call in calls:
        if call.cause == cause and call.rank in ranks:
            place = call.name, call.operator, call.code
            time[place] += call.time
            first.setdefault(place, call)
    return [(first[place], time[place]) for place in sorted(time, key=lambda each: -time[each])[:MOST_NAMED]]


def _call_evidence(key: str, call: IdleCall, time: float, unit: str = "ms_per_step") -> MeasuredValue:
    around = ", ".join(each for each in (call.operator, call.code) if each)
    return MeasuredValue(
        key, round(time / 1e6, 3), unit=unit, values={"call": f"{call.name} ({around})" if around else call.name}
    )
