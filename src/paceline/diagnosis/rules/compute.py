"""Ranks whose self time is longer than that of their peers, and the most specific reason for it.

The trigger is self time (never waiting) over many steps. Then the reason is looked for, from the most specific: a lower
clock frequency, one slow operator, launch gaps or input, a whole host, else the card itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject, When
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding, slow_steps
from paceline.diagnosis.rules.idle import idle_outside_input
from paceline.diagnosis.rules.replicas import slow_by_themselves
from paceline.diagnosis.time_pattern import time_pattern
from paceline.metrics.operators import OperatorTime, host_operators_against_peers, kernels_against_peers
from paceline.metrics.peers import nan_median
from paceline.metrics.rank_performance import median_place
from paceline.metrics.steps import step_condition
from paceline.metrics.undisturbed import trains_on_processors
from paceline.replay.fixes import at_peer_speed

SLOWER_CLOCK_SHARE = 0.97
OPERATOR_SHARE = 0.7
"""One operator explains a slow rank when it holds at least this share of what its kernels take longer …"""
EXPLAINED_SHARE = 0.5
"""… and this share of what the rank does."""
SLOWER_OPERATOR = 0.05
WORK_SHARE = 0.6
"""More rows explain a rank when computing them takes at least this share of what it takes longer."""
HOST_SHARE = 0.75
MIN_SHARE_OF_STEP = 0.001
"""Ranks that need less than this share of the step more than their peers slow nobody: only collectives were recorded, say."""
MIN_SHARE_OF_WORST = 0.2
"""Ranks with less than this share of the worst rank's excess are not reported with it."""


@dataclass(frozen=True)
class _Frequency:
    """AI Core frequency of a rank and of its peers, in whole MHz."""

    mhz: int
    peers_mhz: int


@dataclass(frozen=True)
class Culprit:
    rank_row: int
    reason: str
    frequency: _Frequency | None = None
    operator: OperatorTime | None = None
    """The one that takes longer than on the peers."""

    @property
    def operators(self) -> tuple[str, ...]:
        return (self.operator.type,) if self.operator else ()

    @property
    def cause(self) -> tuple[str, _Frequency | None, tuple[str, ...]]:
        """Ranks with the same cause make one finding."""
        return self.reason, self.frequency, self.operators


@rule(priority=10)
def slow_computing(context: DiagnosisContext) -> list[RuleFinding]:
    slow = [
        rank_row
        for rank_row in slow_by_themselves(context)
        if _is_noticeable(context, rank_row) and not _has_more_work(context, rank_row)
    ]
    if not slow:
        return []
    # Waiting for a slow rank cannot be separated from work exactly: a small excess of others may come from it.
    slow = [
        rank_row
        for rank_row in slow
        if context.excess.per_rank[rank_row] >= MIN_SHARE_OF_WORST * context.excess.per_rank[slow[0]]
    ]
    # A host that is late because its input is late is no slow host: its ranks are asked for the cause below.
    hosts = {
        host: rank_rows
        for host, rank_rows in _whole_hosts(context, slow).items()
        if not all(_outside_computing(context, rank_row) == "input-bound" for rank_row in rank_rows)
    }
    findings = [_host_finding(context, host, rank_rows) for host, rank_rows in hosts.items()]
    covered = {rank_row for rank_rows in hosts.values() for rank_row in rank_rows}
    by_cause: dict[tuple[object, ...], list[Culprit]] = defaultdict(list)
    for rank_row in slow:
        if rank_row not in covered:
            culprit = _find_cause(context, rank_row)
            by_cause[culprit.cause].append(culprit)
    return findings + [_rank_finding(context, culprits) for culprits in by_cause.values()]


def _is_noticeable(context: DiagnosisContext, rank_row: int) -> bool:
    more = float(context.excess.median_value[rank_row] - context.excess.median_reference[rank_row])
    return more >= MIN_SHARE_OF_STEP * context.step_ms * 1e6


def _has_more_work(context: DiagnosisContext, rank_row: int) -> bool:
    """Whether most of what the rank takes longer is more rows to compute, not the same rows in more time."""
    more = float(context.excess.median_value[rank_row] - context.excess.median_reference[rank_row])
    return context.extra_work(context.ranks[rank_row].rank) >= WORK_SHARE * more > 0


def _whole_hosts(context: DiagnosisContext, slow: list[int]) -> dict[str, list[int]]:
    """Hosts most of whose ranks are slow while most of the other hosts' are not."""
    members: dict[str, list[int]] = defaultdict(list)
    for rank_row, info in enumerate(context.ranks):
        if info.host:
            members[info.host].append(rank_row)
    if len(members) < 2:
        return {}
    return {
        host: [rank_row for rank_row in rank_rows if rank_row in slow]
        for host, rank_rows in members.items()
        if len(rank_rows) > 1 and sum(rank_row in slow for rank_row in rank_rows) >= HOST_SHARE * len(rank_rows)
    }


def _find_cause(context: DiagnosisContext, rank_row: int) -> Culprit:
    frequency = _frequency(context, rank_row)
    if frequency:
        return Culprit(rank_row, "frequency-drop", frequency=frequency)
    operator = _operator(context, rank_row)
    if operator:
        return Culprit(rank_row, "slow-operator", operator=operator)
    kind = _outside_computing(context, rank_row)
    return Culprit(rank_row, kind or "slow-rank")


def _frequency(context: DiagnosisContext, rank_row: int) -> _Frequency | None:
    """AI Core frequency, where it is clearly below that of the peers."""
    rows = context.rows("SELECT rank, avg(value) FROM counters WHERE name = 'AI Core Freq' AND value > 0 GROUP BY rank")
    readings = dict(rows)
    mine = readings.get(context.ranks[rank_row].rank)
    others = [value for rank, value in rows if rank != context.ranks[rank_row].rank]
    if mine is None or not others or mine >= SLOWER_CLOCK_SHARE * float(np.median(others)):
        return None
    return _Frequency(round(mine), round(float(np.median(others))))


def _operator(context: DiagnosisContext, rank_row: int) -> OperatorTime | None:
    """The operator type that holds most of the excess."""
    types = _operator_times(context, rank_row)
    total = sum(max(0.0, one.time - one.reference_time) for one in types)
    slower = [one for one in types if one.excess > SLOWER_OPERATOR and one.time > one.reference_time]
    if not total or not slower or len(slower) > max(1, len(types) // 4):
        return None
    worst = max(slower, key=lambda one: one.time - one.reference_time)
    more = worst.time - worst.reference_time
    if more < OPERATOR_SHARE * total:
        return None
    own = (context.excess.median_value[rank_row] - context.excess.median_reference[rank_row]) / 1e6
    return worst if more >= EXPLAINED_SHARE * own else None


def _operator_times(context: DiagnosisContext, rank_row: int) -> list[OperatorTime]:
    """Of the device; of the host where no rank used a device, as torch on processors."""
    peers = context.global_ranks(list(next(ranks for ranks in context.peer_groups if rank_row in ranks)))
    rank, chosen = context.ranks[rank_row].rank, step_condition(context.performance.steps.tolist())
    if "kineto" not in context.run.formats or context.rows("SELECT 1 FROM kernels LIMIT 1"):
        return kernels_against_peers(context.run, rank, peers, chosen)
    context.run.load(["events"])
    return host_operators_against_peers(context.run, rank, peers, chosen)


def _outside_computing(context: DiagnosisContext, rank_row: int) -> str:
    """host-bound or input-bound when the excess is not in computing."""
    data = context.matrix(INPUT_WAIT)
    free = idle_outside_input(context) + np.nan_to_num(data)
    peers = [peer for peer in next(ranks for ranks in context.peer_groups if rank_row in ranks) if peer != rank_row]
    more_own, more_free, more_data = (
        nan_median(values)[rank_row] - float(np.median(nan_median(values)[peers]))
        for values in (context.self_time, free, data)
    )
    if more_own > 0 and more_data >= 0.6 * more_own:
        return "input-bound"
    if trains_on_processors(context.run):
        return ""  # no device waits for its launches: what lies between operators is work too
    return "host-bound" if more_free >= 0.6 * more_own else ""  # nan, where it is unknown, is not


def _rank_finding(context: DiagnosisContext, culprits: list[Culprit]) -> RuleFinding:
    rank_rows = [culprit.rank_row for culprit in culprits]
    reason = culprits[0].reason
    frequency = culprits[0].frequency
    return RuleFinding(
        id=reason,
        subject=Subject(
            ranks=context.global_ranks(rank_rows), hosts=context.hosts_of(rank_rows), operators=culprits[0].operators
        ),
        gain=_gain(context, rank_rows),
        confidence=_confidence(context, rank_rows),
        when=_when(context, rank_rows),
        amount=_amount(context, culprits),
        detail=Quantity(frequency.peers_mhz, "MHz", ",.0f") if frequency else None,
        evidence=(*_operator_evidence(culprits), *_evidence(context, rank_rows, _worst(context, rank_rows))),
        min_severity="low",  # slower than its peers, even if others hide it today
    )


def _amount(context: DiagnosisContext, culprits: list[Culprit]) -> Quantity:
    """A frequency, a share of the step for what is waited for, else how much slower than the peers."""
    reason, rank_rows = culprits[0].reason, [culprit.rank_row for culprit in culprits]
    if frequency := culprits[0].frequency:
        return Quantity(frequency.mhz, "MHz", ",.0f")
    if operator := _slowest_operator(culprits):
        return Quantity(100 * operator.excess, "%")
    worst = _worst(context, rank_rows)
    if reason in ("input-bound", "host-bound"):
        more = float(context.excess.median_value[worst] - context.excess.median_reference[worst])
        return Quantity(100 * more / max(1.0, context.step_ms * 1e6), "%")
    return Quantity(100 * float(context.excess.per_rank[worst]), "%")


def _slowest_operator(culprits: list[Culprit]) -> OperatorTime | None:
    found = [culprit.operator for culprit in culprits if culprit.operator]
    return max(found, key=lambda operator: operator.excess, default=None)


def _operator_evidence(culprits: list[Culprit]) -> tuple[MeasuredValue, ...]:
    operator = _slowest_operator(culprits)
    if operator is None:
        return ()
    mean, reference = round(operator.mean, 4), round(operator.reference, 4)
    return (MeasuredValue("operator_mean", mean, reference, "ms", {"operator": operator.type}),)


def _worst(context: DiagnosisContext, rank_rows: list[int]) -> int:
    """The rank whose numbers the finding shows."""
    return max(rank_rows, key=lambda rank_row: float(context.excess.per_rank[rank_row]))


def _host_finding(context: DiagnosisContext, host: str, rank_rows: list[int]) -> RuleFinding:
    """With the numbers of the host's median rank, in the title as in the evidence."""
    middle = median_place(context.excess.per_rank, rank_rows)
    return RuleFinding(
        id="slow-host",
        subject=Subject(ranks=context.global_ranks(rank_rows), hosts=(host,)),
        gain=_gain(context, rank_rows),
        confidence=_confidence(context, rank_rows),
        when=_when(context, rank_rows),
        amount=Quantity(100 * float(context.excess.per_rank[middle]), "%"),
        evidence=_evidence(context, rank_rows, middle),
        min_severity="low",  # slower than its peers, even if others hide it today
    )


def _gain(context: DiagnosisContext, rank_rows: list[int]) -> PredictedGain:
    """Of the typical step; of the mean step if some steps are free of it, which a median would not count."""
    fixed = at_peer_speed(context.replay, context.replay.costs, rank_rows, context.excess)
    return context.gain(fixed) if _slow_steps(context, rank_rows).all() else context.mean_gain(fixed)


def _slow_steps(context: DiagnosisContext, rank_rows: list[int]) -> NDArray[np.bool_]:
    """Steps in which half of these ranks or more are nearer to their own excess than to none, as far as they are known."""
    relative, usual = context.excess.relative[rank_rows], context.excess.per_rank[rank_rows]
    slow = np.nan_to_num(relative, nan=np.inf) > usual[:, None] / 2
    return np.asarray(slow.mean(axis=0) >= 0.5)


def _when(context: DiagnosisContext, rank_rows: list[int]) -> When | None:
    """In which steps these ranks are slow, and whether more and more."""
    amounts = nan_median(context.excess.relative[rank_rows].T)
    return time_pattern(_slow_steps(context, rank_rows).tolist(), context.timeline.steps.tolist(), amounts)


def _confidence(context: DiagnosisContext, rank_rows: list[int]) -> float:
    """Over ranks × steps: these are slow in the steps of the finding, their peers are not; less what chance would do."""
    relative, slow = context.excess.relative, _slow_steps(context, rank_rows)
    peers = [row for group in context.peer_groups for row in group if set(rank_rows) & set(group)]
    others = [row for row in peers if row not in context.excess.persistent()]
    mine = relative[rank_rows]
    shown = nearer(
        mine[:, slow],
        np.concatenate([relative[others].ravel(), mine[:, ~slow].ravel()]),
        at=float(np.min(context.excess.per_rank[rank_rows])),
    )
    return round(shown * (1 - context.excess.doubt(rank_rows)), 2)


def _evidence(context: DiagnosisContext, rank_rows: list[int], rank_row: int) -> tuple[MeasuredValue, ...]:
    """Self time of one rank against its peers, in which steps, and how often it came last."""
    own, reference = context.excess.median_value[rank_row] / 1e6, context.excess.median_reference[rank_row] / 1e6
    last, slow = context.last_share(context.ranks[rank_row].rank), _slow_steps(context, rank_rows)
    return (
        MeasuredValue("self_time", round(float(own), 3), round(float(reference), 3), "ms"),
        *(() if slow.all() else (slow_steps(int(slow.sum()), len(slow)),)),
        *(
            ()
            if last is None
            else (MeasuredValue("last_to_arrive", round(100 * last, 1), unit="percent_of_collectives"),)
        ),
    )
