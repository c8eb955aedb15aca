"""Steps that differ from each other: a single stall, work that is distributed unevenly, or jitter."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding, slow_steps
from paceline.diagnosis.rules.common_stalls import common_stalls
from paceline.diagnosis.rules.host import input_bound
from paceline.diagnosis.rules.one_off import one_off_stall, one_off_transfers
from paceline.diagnosis.rules.replicas import (
    SAME_WORK,
    are_apart,
    over_peer_mean,
    replica_correlation,
    replica_pairs,
    slow_by_themselves,
)
from paceline.metrics.host_vs_workload import work_differs
from paceline.metrics.peers import nan_median
from paceline.metrics.steps import step_condition
from paceline.replay.fixes import at_peer_speed, scale_self_time, with_equal_work, without_jitter
from paceline.replay.replay import Costs

STALL = 0.08
"""One step of one rank this much longer than its peers' and than its own other steps."""
SPREAD = 0.04
"""Typical distance of the slowest rank from the mean of its peers, step by step, from which it is reported."""
INPUT_PART = 0.6
"""Share of a longer step that waiting for input must explain."""
FEWEST_SLOW_STEPS = 2
"""A rank is slow from time to time if it was in so many steps; once is a stall."""
SAME_DATA = 0.9
"""… and above which nothing but the same data explains it: what disturbs a host holds up each of its ranks by its own amount."""


@rule(priority=110)
def unsteady_steps(context: DiagnosisContext) -> list[RuleFinding]:
    alone = _stalls(context) or one_off_transfers(context) + _varying_self_time(context)
    return alone + common_stalls(context)


def _stalls(context: DiagnosisContext) -> list[RuleFinding]:
    if context.self_time.shape[1] < 2:
        return []
    over = _over_other_peers(context)
    noise = max(
        context.excess.noise, 1.4826 * float(np.nanmedian(np.abs(over))) if (~np.isnan(over)).any() else 0.0, 0.003
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        unusual = context.self_time / _undisturbed_self_time(context.self_time)[:, None] - 1
        peak = (over > max(STALL, 10 * noise)) & (unusual > max(STALL, 3 * noise))
    same_work = not _may_have_more_work(context)
    if not same_work:
        peak &= ~_longer_everywhere(context, over)
    peak[context.excess.persistent()] = False
    steps_of = {int(row): np.flatnonzero(peak[row]).tolist() for row in np.flatnonzero(peak.any(axis=1))}
    # What happens to many ranks in many steps is not the stall of one of them; one in each step, they are no more than the steps.
    many_ranks = len(steps_of) > max(1, min(len(peak) // 8, peak.shape[1] // 2))
    many_steps = int(peak.any(axis=0).sum()) > peak.shape[1] // 3
    if len(steps_of) > max(2, len(peak) // 4) or (many_ranks and many_steps):
        return []
    rows_by_steps: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank_row, columns in steps_of.items():
        rows_by_steps[tuple(columns)].append(rank_row)
    found = [
        (finding, rank_rows, list(steps))
        for steps, rank_rows in rows_by_steps.items()
        if (finding := _stall(context, tuple(rank_rows), list(steps)))
    ]
    slow = same_work & _both_parts_longer(context, over)
    late = _late_input(context)
    if input_bound(context):  # that of a rank comes later than that of others now and then: the same finding
        found = [stall for stall in found if not late[stall[1]][:, stall[2]].all()]

    def with_cause(stall: RuleFinding, rank_rows: list[int], columns: list[int]) -> RuleFinding:
        if len(columns) < FEWEST_SLOW_STEPS:
            return stall
        if late[rank_rows][:, columns].all():
            return _with_late_input(context, stall)
        if slow[rank_rows][:, columns].all():
            return _slow_in_steps(context, stall, over, rank_rows)
        return stall

    return [with_cause(*stall) for stall in found]


def _late_input(context: DiagnosisContext) -> NDArray[np.bool_]:
    """Ranks × steps in which waiting for input is most of what exceeds the rank's own undisturbed steps."""
    wait = np.nan_to_num(context.matrix(INPUT_WAIT))
    usual = _undisturbed_self_time(context.self_time)
    with np.errstate(invalid="ignore"):
        more = context.self_time - usual[:, None]
        return np.asarray((more > 0) & (wait - _undisturbed_self_time(wait)[:, None] >= INPUT_PART * more))


def _with_late_input(context: DiagnosisContext, stall: RuleFinding) -> RuleFinding:
    """Input that comes late in some steps, with the share of the mean step that it costs."""
    shown = slow_steps(len(stall.subject.steps), len(context.timeline.steps))
    return replace(stall, id="input-bound", amount=Quantity(stall.gain.percent, "%"), evidence=(*stall.evidence, shown))


def _slow_in_steps(context: DiagnosisContext, stall: RuleFinding, over: Floats, rank_rows: list[int]) -> RuleFinding:
    """Not a pause: in these steps all computing took longer, for kernels of the same shapes as on the peers."""
    columns = [context.timeline.steps.tolist().index(step) for step in stall.subject.steps]
    mine = float(np.mean(context.self_time[rank_rows[0], columns])) / 1e6
    more, others = over[rank_rows][:, columns], np.delete(over, rank_rows, axis=0)
    slower = float(np.mean(more))
    return replace(
        stall,
        id="slow-rank",
        confidence=nearer(
            more, np.concatenate([others.ravel(), np.delete(over[rank_rows], columns, axis=1).ravel()]), at=slower
        ),
        amount=Quantity(100 * slower, "%"),
        evidence=(
            MeasuredValue("self_time", round(mine, 3), round(mine / (1 + slower), 3), "ms"),
            slow_steps(len(columns), over.shape[1]),
            *stall.evidence,
        ),
    )


def _over_other_peers(context: DiagnosisContext) -> Floats:
    """Self time over the median of the other peers in that step, minus 1, ranks × steps."""
    result = np.full(context.self_time.shape, np.nan)
    for ranks in context.peer_groups:
        for rank_row in ranks if len(ranks) > 1 else ():
            others = nan_median(context.self_time[[rank for rank in ranks if rank != rank_row]].T)
            with np.errstate(invalid="ignore", divide="ignore"):
                result[rank_row] = context.self_time[rank_row] / others - 1
    return result


def _undisturbed_self_time(self_time: Floats) -> Floats:
    """Self time of each rank in its faster steps: the first quartile."""
    return np.array([np.nanquantile(row, 0.25) if (~np.isnan(row)).any() else np.nan for row in self_time])


def _stall(context: DiagnosisContext, rank_rows: tuple[int, ...], columns: list[int]) -> RuleFinding | None:
    """These ranks stalled in these steps; None where no other rank waited for them."""
    costs = at_peer_speed(context.replay, context.replay.costs, rank_rows, context.excess, steps=columns)
    lost = (context.replay.base.step_times - context.replay.run(costs).step_times)[columns] / 1e6
    costly = [column for column, time in zip(columns, lost, strict=True) if time >= 0.02 * context.step_ms]
    if not costly:
        return None
    return one_off_stall(context, list(rank_rows), costly, float(lost.sum()), min_severity="medium", fixed=costs)


def _longer_everywhere(context: DiagnosisContext, over: Floats) -> NDArray[np.bool_]:
    """Ranks × steps with both parts of the step longer than the peers': more work, not a pause.

    Where a replica has several ranks, more work shows on all of them, and the parts of a step are not needed.
    """
    if replica_pairs(context):
        return np.zeros(context.self_time.shape, dtype=np.bool_)
    return _both_parts_longer(context, over)


def _both_parts_longer(context: DiagnosisContext, over: Floats) -> NDArray[np.bool_]:
    first, second = _step_parts(context)
    over_mean = [over_peer_mean(context, part) for part in (first, second)]
    with np.errstate(invalid="ignore"):
        return np.asarray((over_mean[0] > 0.5 * over) & (over_mean[1] > 0.5 * over))


def _varying_self_time(context: DiagnosisContext) -> list[RuleFinding]:
    """The slowest rank is a different one in every step."""
    if context.self_time.shape[1] < 2:
        return []
    over_mean = _over_mean(context)
    if np.isnan(over_mean).all():
        return []
    slowest = np.max(np.nan_to_num(over_mean, nan=-1.0), axis=0)
    # Longer data may come in few steps, and costs what it costs; what comes by chance is judged by the typical step.
    more_work = float(np.mean(slowest)) >= SPREAD and _has_replicas_of_more_work(context, over_mean)
    if not more_work and float(np.median(slowest)) < SPREAD:
        return _varying_step_begin(context)
    if not more_work and slow_by_themselves(context):
        return []  # a persistently slow rank may vary too: one finding is enough
    fixed = (
        _evenly_distributed(context)
        if more_work
        else without_jitter(context.replay, context.replay.costs, context.peer_groups, quantile=0.5)
    )
    rank_rows = sorted(
        np.argsort(-np.max(np.nan_to_num(over_mean, nan=-1.0), axis=1))[: max(1, len(context.ranks) // 4)].tolist()
    )
    return [_variation(context, fixed, slowest, Subject(ranks=context.global_ranks(rank_rows)) if more_work else None)]


def _may_have_more_work(context: DiagnosisContext) -> bool:
    """Not if all ranks are known to run the same kernels on the same shapes: then some take longer for the same work."""
    peers = [context.global_ranks(list(ranks)) for ranks in context.peer_groups if len(ranks) > 1]
    return work_differs(context.run, peers, step_condition(context.performance.steps.tolist())) is not False


def _varying_step_begin(context: DiagnosisContext) -> list[RuleFinding]:
    """What varies is how late steps begin, on another rank each time."""
    slowest = np.max(np.nan_to_num(over_peer_mean(context, context.self_time), nan=-1.0), axis=0)
    spread = float(np.median(slowest))
    if spread < 2 * SPREAD or context.excess.persistent():
        return []
    return [
        _variation(
            context,
            without_jitter(context.replay, context.replay.costs, context.peer_groups, quantile=0.5),
            slowest,
            None,
        )
    ]


def _variation(context: DiagnosisContext, fixed: Costs, slowest: Floats, overloaded: Subject | None) -> RuleFinding:
    """These ranks got more work, or the time varies by chance; `slowest`: by how much one rank exceeds the mean, per step."""
    spread = float(np.mean(slowest) if overloaded else np.median(slowest))
    return RuleFinding(
        id="load-imbalance" if overloaded else "jitter",
        subject=overloaded or Subject(),
        gain=context.mean_gain(fixed) if overloaded else context.gain(fixed),
        confidence=nearer(slowest, [], at=spread),
        amount=Quantity(100 * spread, "%"),
        evidence=(MeasuredValue("slowest_over_mean", round(100 * spread, 1), unit="%"),),
        min_severity="low" if spread >= 2 * SPREAD else "info",
        # Jitter names no rank, and a busy host without any fault looks the same.
        max_severity="high" if overloaded else "low",
    )


def _evenly_distributed(context: DiagnosisContext) -> Costs:
    """The same work for all ranks; persistently slow ones stay as slow."""
    slower = np.ones(context.self_time.shape)
    slow = slow_by_themselves(context)
    slower[slow] += context.excess.per_rank[slow][:, None]
    equal = scale_self_time(context.replay, context.replay.costs, 1 / slower)
    return scale_self_time(context.replay, with_equal_work(context.replay, equal, context.peer_groups), slower)


def _over_mean(context: DiagnosisContext) -> Floats:
    """Self time without input wait, over the mean of the peers: with evenly distributed work every rank would have the mean.

    Persistently slow ranks are scaled to the speed of their peers first.
    """
    self_time = context.self_time - np.nan_to_num(context.matrix(INPUT_WAIT))
    typical, slow = nan_median(self_time), set(slow_by_themselves(context))
    for ranks in context.peer_groups:
        healthy = [rank for rank in ranks if rank not in slow]
        for rank_row in slow.intersection(ranks):
            self_time[rank_row] *= float(np.median(typical[healthy])) / typical[rank_row] if healthy else 1.0
    return over_peer_mean(context, self_time)


def _has_replicas_of_more_work(context: DiagnosisContext, over_mean: Floats) -> bool:
    """Whether ranks of one replica take longer in the same steps: their data is longer.

    Shapes do not always show it: masked and packed sequences have those of others. So ranks that run the same got more work
    too, if they take longer on several hosts or stages of a replica, or exactly as much longer.
    """
    pairs = replica_pairs(context)
    if not pairs:
        return _part_correlation(context) > SAME_WORK and _may_have_more_work(context)
    together = replica_correlation(context, over_mean, pairs)
    if together <= SAME_WORK or together > SAME_DATA or _may_have_more_work(context):
        return together > SAME_WORK
    apart = [pair for pair in pairs if are_apart(context, *pair)]
    return replica_correlation(context, over_mean, apart) > SAME_WORK


def _part_correlation(context: DiagnosisContext) -> float:
    """Correlation, over ranks and steps, of what two parts of a step need more than the peers' mean.

    Where every replica is one rank: more work makes all of its step longer, jitter does not.
    """
    first, second = _step_parts(context)
    parts = [over_peer_mean(context, part).ravel() for part in (first, second)]
    known = ~np.isnan(parts[0]) & ~np.isnan(parts[1])
    x, y = parts[0][known], parts[1][known]
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 3 and np.std(x) > 0 and np.std(y) > 0 else 0.0


def _step_parts(context: DiagnosisContext) -> tuple[Floats, Floats]:
    """Self time of each step in two parts: forward and backward where they are recorded, else around the first event."""
    timeline, events = context.timeline, context.timeline.events
    passes = [np.flatnonzero(events.op == f"{name}-compute") for name in ("forward", "backward")]
    if all(len(rows) for rows in passes):
        return _computing_of(context, passes[0]), _computing_of(context, passes[1])
    first = np.full(context.self_time.shape, np.nan)
    rows = np.flatnonzero(~timeline.is_end)[::-1]
    begin = np.concatenate(
        [np.zeros((len(context.self_time), 1)), np.cumsum(context.self_time, axis=1)[:, :-1]], axis=1
    )
    first[events.rank[rows], timeline.step[rows]] = timeline.self_time_until[rows]
    first -= begin
    return first, context.self_time - first


def _computing_of(context: DiagnosisContext, rows: NDArray[np.int64]) -> Floats:
    """Computing of these rows, ranks × steps."""
    result = np.zeros(context.self_time.shape)
    np.add.at(result, (context.timeline.events.rank[rows], context.timeline.step[rows]), context.timeline.overlap[rows])
    return result
