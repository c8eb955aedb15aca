"""Causes on the host that slow most ranks: late input, late kernel launches, operators on the AI CPU."""

from __future__ import annotations

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.metrics.peers import nan_median
from paceline.replay.fixes import reduce_self_time, start_steps_earlier

INPUT_SHARE = 0.05
FREE_SHARE = 0.06
CPU_SHARE = 0.03
AFFECTED_QUANTILE = 0.25
"""Quantile over ranks: at least three quarters of them must be affected; single ranks are found by rules/compute.py."""
NORMAL_START_SHARE = 0.005
"""Share of a step that its start takes in a healthy run."""


@rule(priority=80)
def input_bound(context: DiagnosisContext) -> list[RuleFinding]:
    """Most ranks wait for their batch before they begin."""
    wait = context.matrix(INPUT_WAIT)
    share = nan_median(wait / (context.step_ms * 1e6)) if context.step_ms else np.zeros(0)
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
            gain=context.gain(start_steps_earlier(context.replay, context.replay.costs, less)),
            confidence=0.9,
            amount=amount,
            evidence=(MeasuredValue("input_wait", round(time, 3), unit="ms_per_step"),),
        )
    ]


@rule(priority=90)
def host_bound(context: DiagnosisContext) -> list[RuleFinding]:
    """Most ranks idle between kernels, waiting neither for input nor for others."""
    free = context.matrix("free")
    begin = np.nan_to_num(context.matrix(INPUT_WAIT))
    gaps = np.maximum(0, free - begin)
    share = nan_median(gaps / (context.step_ms * 1e6)) if context.step_ms else np.zeros(0)
    share = share[~np.isnan(share)]
    if not len(share) or float(np.quantile(share, AFFECTED_QUANTILE)) < FREE_SHARE:
        return []
    if _memory_calls(context):
        return []
    less = np.maximum(0, gaps - 0.015 * context.step_ms * 1e6)
    amount, time = _mean_part(context, "free")
    return [
        RuleFinding(
            id="host-bound",
            subject=Subject(
                ranks=tuple(info.rank for info in context.ranks),
                hosts=context.hosts_of(list(range(len(context.ranks)))),
            ),
            gain=context.gain(reduce_self_time(context.replay, context.replay.costs, less)),
            confidence=0.85,
            amount=amount,
            evidence=(MeasuredValue("idle_between_kernels", round(time, 3), unit="ms_per_step"),),
        )
    ]


def _mean_part(context: DiagnosisContext, part: str) -> tuple[Quantity, float]:
    """A part of the mean step of all ranks, as the pages show it: its share, and ms per step."""
    mean = context.performance.cluster_mean.numbers
    time = float(mean[part][0])
    return Quantity(100 * time / float(mean["duration"][0]), "%"), time


def _memory_calls(context: DiagnosisContext) -> bool:
    """Whether device memory is allocated and freed during steps: then memory is the cause, see memory_pressure."""
    rows = context.rows(
        "SELECT count(*) FROM host_calls WHERE lower(name) LIKE '%malloc%' OR lower(name) LIKE '%aclrtfree%'"
    )
    return bool(rows[0][0])


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
            confidence=0.9,
            amount=Quantity(100 * slow / float(total[0]), "%"),
            evidence=(MeasuredValue("ai_cpu_time", round(per_step / 1e6, 3), unit="ms_per_step"),),
        )
    ]
