"""Causes on the host that slow most ranks: late input, late kernel launches, operators on the AI CPU."""

from __future__ import annotations

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.finding import Subject, When
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.diagnosis.rules.common_stalls import common_pauses
from paceline.diagnosis.rules.idle import NOT_LAUNCHING, idle_by_cause, idle_outside_input
from paceline.diagnosis.time_pattern import time_pattern
from paceline.metrics.idle_causes import idle_calls
from paceline.metrics.peers import nan_median
from paceline.replay.fixes import reduce_self_time, start_steps_earlier

INPUT_SHARE = 0.05
FREE_SHARE = 0.06
CPU_SHARE = 0.03
AFFECTED_QUANTILE = 0.25
"""Quantile over ranks: at least three quarters of them must be affected; single ranks are found by rules/compute.py."""
MEMORY_SHARE = 0.5
NORMAL_START_SHARE = 0.005
"""Share of a step that its start takes in a healthy run."""


@rule(priority=80)
def input_bound(context: DiagnosisContext) -> list[RuleFinding]:
    """Most ranks wait for their batch before they begin."""
    wait = context.matrix(INPUT_WAIT)
    share = _lasting_share(wait, context.matrix("duration"))
    share = share[~np.isnan(share)]
    if not len(share) or float(np.quantile(share, AFFECTED_QUANTILE)) < INPUT_SHARE:
        return []
    normal = NORMAL_START_SHARE * context.step_ms * 1e6
    less = np.maximum(0, np.nan_to_num(wait) - normal)
    amount, time = _mean_part(context, "data")
    return [
        RuleFinding(
            id="input-bound",
            subject=Subject(
                ranks=tuple(info.rank for info in context.ranks),
                hosts=context.hosts_of(list(range(len(context.ranks)))),
            ),
            gain=context.mean_gain(start_steps_earlier(context.replay, context.replay.costs, less)),
            confidence=_input_confidence(wait, share, context),
            when=_late_steps(wait, context),
            amount=amount,
            evidence=(MeasuredValue("input_wait", round(time, 3), unit="ms_per_step"),),
        )
    ]


@rule(priority=90)
def host_bound(context: DiagnosisContext) -> list[RuleFinding]:
    """Most ranks idle between kernels, waiting neither for input nor for others."""
    if _no_device(context):
        return []
    explained = idle_by_cause(context, idle_calls(context.run, context.performance.steps.tolist()), NOT_LAUNCHING)
    gaps = np.maximum(0, idle_outside_input(context) - explained)
    gaps[:, common_pauses(context)] = np.nan  # a finding of their own
    share = nan_median(gaps / (context.step_ms * 1e6)) if context.step_ms else np.zeros(0)
    share = share[~np.isnan(share)]
    if not len(share) or float(np.quantile(share, AFFECTED_QUANTILE)) < FREE_SHARE:
        return []
    if _memory_explains(context, gaps):
        return []
    less = np.maximum(0, np.nan_to_num(gaps) - 0.015 * context.step_ms * 1e6)
    amount, time = _mean_part(context, "free")
    time = max(0.0, time - float(explained.mean()) / 1e6)
    amount = Quantity(100 * time / float(context.performance.cluster_mean.numbers["duration"][0]), "%")
    return [
        RuleFinding(
            id="host-bound",
            subject=Subject(
                ranks=tuple(info.rank for info in context.ranks),
                hosts=context.hosts_of(list(range(len(context.ranks)))),
            ),
            gain=context.gain(reduce_self_time(context.replay, context.replay.costs, less)),
            confidence=nearer(gaps, [], at=FREE_SHARE * context.step_ms * 1e6),
            amount=amount,
            evidence=(MeasuredValue("idle_between_kernels", round(time, 3), unit="ms_per_step"),),
        )
    ]


def _late_steps(wait: Floats, context: DiagnosisContext) -> When | None:
    """Steps in which ranks wait more than half as long as in those in which they wait longest."""
    means = nan_median(np.nan_to_num(wait).T)
    late = means > 0.5 * float(np.quantile(means, 0.9))
    return time_pattern(late.tolist(), context.timeline.steps.tolist())


def _input_confidence(wait: Floats, share: Floats, context: DiagnosisContext) -> float:
    """Over ranks × steps; or over ranks, which agree on what happens every n-th step only."""
    steps = nearer(wait, [], at=INPUT_SHARE * context.step_ms * 1e6)
    return max(steps, nearer(share, [], at=INPUT_SHARE))


def _lasting_share(wait: Floats, duration: Floats) -> Floats:
    """Which share of its steps each rank waits, nan where unknown: sums, because input may be late every n-th step only.

    The step in which it waits longest is left out where there are others: what happened once does not last.
    """
    if not wait.size:
        return np.zeros(0)
    known = ~np.isnan(wait) & (duration > 0)
    several = known.sum(axis=1) >= 3
    longest = np.argmax(np.where(known, wait, -1.0), axis=1)
    known[np.flatnonzero(several), longest[several]] = False
    lost, whole = (np.where(known, values, 0.0).sum(axis=1) for values in (wait, duration))
    shares: Floats = np.divide(lost, whole, out=np.full(len(wait), np.nan), where=whole > 0)
    return shares


def _mean_part(context: DiagnosisContext, part: str) -> tuple[Quantity, float]:
    """A part of the mean step of all ranks, as the pages show it: its share, and ms per step."""
    mean = context.performance.cluster_mean.numbers
    time = float(mean[part][0])
    return Quantity(100 * time / float(mean["duration"][0]), "%"), time


def _no_device(context: DiagnosisContext) -> bool:
    """Torch on CPUs only: Python between operators is nothing that a device waits for."""
    return context.run.formats == ["kineto"] and not context.rows("SELECT count(*) FROM kernels")[0][0]


def _memory_explains(context: DiagnosisContext, gaps: Floats) -> bool:
    """Whether half of these gaps or more may be calls that allocate and free memory: then memory is the cause.

    For recordings that only sum such calls; where it is known when they ran, their time is no gap (rules/idle.py).
    """
    if context.rows("SELECT count(*) FROM idle_calls")[0][0]:
        return False
    [(calls, time)] = context.rows(
        "SELECT count(*), sum(time) FROM host_calls WHERE lower(name) LIKE '%malloc%' OR lower(name) LIKE '%aclrtfree%'"
    )
    return bool(calls) and (time is None or float(time) >= MEMORY_SHARE * float(np.nansum(gaps)))


@rule(priority=100)
def cpu_operators(context: DiagnosisContext) -> list[RuleFinding]:
    """Operators that run on the device's CPU because no AI Core version exists or fits."""
    rows = context.rows(
        """
        SELECT type, sum(duration) FILTER (core = 'AI_CPU') AS slow
        FROM kernels GROUP BY type HAVING slow > 0 ORDER BY slow DESC
        """
    )
    total = context.rows(
        "SELECT sum(duration), count(DISTINCT (rank, step)) FROM kernels WHERE core IS DISTINCT FROM 'COMMUNICATION'"
    )[0]
    if not rows or not total[0]:
        return []
    slow = sum(float(row[1]) for row in rows)
    if slow < CPU_SHARE * float(total[0]):
        return []
    per_step = slow / max(1, total[1])
    less = np.full(context.timeline.known.shape, per_step * 0.95)
    return [
        RuleFinding(
            id="cpu-operators",
            subject=Subject(operators=tuple(row[0] for row in rows[:5])),
            gain=context.gain(reduce_self_time(context.replay, context.replay.costs, less)),
            confidence=_cpu_confidence(context),
            amount=Quantity(100 * slow / float(total[0]), "%"),
            evidence=(MeasuredValue("ai_cpu_time", round(per_step / 1e6, 3), unit="ms_per_step"),),
        )
    ]


def _cpu_confidence(context: DiagnosisContext) -> float:
    """Over ranks × steps: the share of the time of kernels."""
    shares = context.rows(
        """
        SELECT coalesce(sum(duration) FILTER (core = 'AI_CPU'), 0) / sum(duration) FROM kernels
        WHERE core IS DISTINCT FROM 'COMMUNICATION' GROUP BY rank, step HAVING sum(duration) > 0
        """
    )
    return nearer([float(share) for (share,) in shares], [], at=CPU_SHARE)
