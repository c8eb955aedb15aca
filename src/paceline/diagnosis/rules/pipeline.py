"""Pipeline stages: uneven work, and too few micro-batches to fill them."""

from __future__ import annotations

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import agreement, nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.metrics.host_vs_workload import compare_kernel_speed
from paceline.metrics.peers import nan_median
from paceline.replay.fixes import (
    balance_stages,
    computing_by_name,
    lighten_stages,
    scale_self_time,
    start_steps_earlier,
)

UNEVEN_FACTOR = 1.06
"""The slowest stage needs this much more than the mean stage."""
ALIKE_SHARE = 0.6
"""Stages with at least this share of the worst one's excess are listed with it."""
BUBBLE_SHARE = 0.3
"""Idle share of a balanced pipeline, (p - 1) / (m + p - 1), from which it is reported."""
SLOWER_FACTOR = 1.04
"""Kernels of the same shapes take this much longer on a slow host."""
EXPLAINED_SHARE = 0.5
"""Slow kernels must explain at least this share of the excess of the stage."""
INPUT_SHARE = 0.6
"""Late input explains a stage when it holds at least this share of what the stage takes longer, as for single ranks."""
MORE_MICRO_BATCHES = 4
"""The advice: this many times as many micro-batches, each as much smaller."""


@rule(priority=20)
def stage_imbalance(context: DiagnosisContext) -> list[RuleFinding]:
    stages = _stages(context)
    if len(stages) < 2:
        return []
    typical = _stage_self_times(context, stages)
    mean = float(np.mean(list(typical.values())))
    worst = max(typical, key=lambda stage: typical[stage])
    if typical[worst] < UNEVEN_FACTOR * mean:
        return []
    heavy = _heavy_stages(typical, mean, worst)
    ranks = tuple(rank_row for stage in heavy for rank_row in stages[stage])
    late = _late_input(context, stages[worst], typical[worst] - _fast_stage_self_time(typical))
    if late:
        return [late]
    host = _slow_host(context, stages[worst], typical[worst] / _fast_stage_self_time(typical) - 1)
    if host:
        return [host]
    return [
        RuleFinding(
            id="stage-imbalance",
            subject=Subject(ranks=context.global_ranks(list(ranks)), stages=heavy),
            gain=context.gain(balance_stages(context.replay, context.replay.costs, list(stages.values()))),
            confidence=_stage_confidence(context, stages, heavy, typical),
            amount=Quantity(100 * (typical[worst] / mean - 1), "%"),
            evidence=(
                *(
                    MeasuredValue("stage_self_time", round(t / 1e6, 3), round(mean / 1e6, 3), "ms", {"stage": s})
                    for s, t in sorted(typical.items())
                ),
                _step_with_equal_stages(context, stages, heavy, typical),
            ),
        )
    ]


def _late_input(context: DiagnosisContext, rank_rows: tuple[int, ...], more: float) -> RuleFinding | None:
    """The input of a stage, if most of what it takes longer than the others (ns) is waiting for it."""
    wait = np.nan_to_num(context.matrix(INPUT_WAIT))
    others = [row for row in range(len(wait)) if row not in rank_rows]
    longer = float(np.median(wait[list(rank_rows)])) - float(np.median(wait[others]) if others else 0.0)
    if longer < INPUT_SHARE * more:
        return None
    less = np.zeros(wait.shape)
    less[list(rank_rows)] = np.maximum(
        0.0, wait[list(rank_rows)] - (np.median(wait[others], axis=0) if others else 0.0)
    )
    return RuleFinding(
        id="input-bound",
        subject=Subject(ranks=context.global_ranks(list(rank_rows)), hosts=context.hosts_of(list(rank_rows))),
        gain=context.mean_gain(start_steps_earlier(context.replay, context.replay.costs, less)),
        confidence=round(float(np.mean(less[list(rank_rows)] > 0.5 * more)), 2),
        amount=Quantity(100 * longer / max(1.0, context.step_ms * 1e6), "%"),
        evidence=(MeasuredValue("input_wait", round(longer / 1e6, 3), unit="ms_per_step"),),
        min_severity="low",
    )


@rule(priority=30)
def pipeline_bubble(context: DiagnosisContext) -> list[RuleFinding]:
    stages = _stages(context)
    if len(stages) < 2:
        return []
    events, timeline = context.timeline.events, context.timeline
    received = np.flatnonzero(events.is_op("receive", "send_receive") & ~timeline.is_end)
    if not len(received):
        return []
    per_step = np.bincount(events.rank[received], minlength=len(context.ranks)) / np.maximum(
        1, timeline.known.sum(axis=1)
    )
    micro_batches = float(np.median(per_step[per_step > 0]))
    inner: list[int] = []
    if len(stages) - 2 > 0:  # inner stages receive forward and backward
        inner = [rank_row for rank_row in range(len(context.ranks)) if 0 < context.stages[rank_row] < len(stages) - 1]
        micro_batches = float(np.median(per_step[inner])) / 2 if inner else micro_batches
    alike = inner or np.flatnonzero(per_step > 0).tolist()
    bubble = (len(stages) - 1) / (micro_batches + len(stages) - 1)
    if bubble < BUBBLE_SHARE:
        return []
    # Filling and draining takes one micro-batch of each other stage; smaller ones fill as much faster. What a slow rank
    # or stage makes the others wait for is not the schedule's, so stages count as their fast halves need.
    filling = (len(stages) - 1) * float(np.mean(list(_stage_self_times(context, stages).values()))) / micro_batches
    now = context.step_ms
    fixed = now - (1 - 1 / MORE_MICRO_BATCHES) * filling / 1e6
    return [
        RuleFinding(
            id="pipeline-bubble",
            subject=Subject(stages=tuple(sorted(stages))),
            gain=PredictedGain(now, fixed),
            confidence=agreement(
                int((np.round(per_step[alike]) == round(float(np.median(per_step[alike])))).sum()), len(alike)
            ),
            amount=Quantity(100 * bubble, "%"),
            detail=Quantity(micro_batches),
            evidence=(
                MeasuredValue("micro_batches", round(micro_batches, 1)),
                MeasuredValue("pipeline_idle_share", round(100 * bubble, 1), unit="%"),
            ),
        )
    ]


def _stages(context: DiagnosisContext) -> dict[int, tuple[int, ...]]:
    return {
        int(stage): tuple(int(rank_row) for rank_row in np.flatnonzero(context.stages == stage))
        for stage in np.unique(context.stages)
        if stage >= 0
    }


def _stage_self_times(context: DiagnosisContext, stages: dict[int, tuple[int, ...]]) -> dict[int, float]:
    """Self time of each stage, ns: the median of its fast half, so that one slow rank does not look like a slow stage."""
    own = nan_median(context.self_time)
    return {
        stage: float(np.nanmedian(np.sort(own[list(ranks)])[: (len(ranks) + 1) // 2]))
        for stage, ranks in stages.items()
    }


def _slow_host(context: DiagnosisContext, worst: tuple[int, ...], more: float) -> RuleFinding | None:
    """The host of a slow stage, if it takes longer for the same work: then the host is slow, not the split uneven.

    `more` is how much longer the stage takes than the others, as a share. Ranks of the host that record no kernels are taken
    to be as the others are.
    """
    hosts = context.hosts_of(list(worst))
    rank_rows = [i for i, info in enumerate(context.ranks) if info.host == hosts[0]] if len(hosts) == 1 else []
    others = [i for i in range(len(context.ranks)) if i not in rank_rows]
    if not rank_rows or not others:
        return None
    compared = compare_kernel_speed(context.run, context.global_ranks(rank_rows), context.global_ranks(others))
    if compared is None or compared.time_ratio < SLOWER_FACTOR or not compared.same_shapes:
        return None  # kernels that take longer may be larger ones: a stage of a pipeline has a program of its own
    stages = {int(context.stages[rank_row]) for rank_row in rank_rows}
    parts = [
        [rank_row for rank_row in rank_rows if context.stages[rank_row] == stage] for stage in stages if len(stages) > 1
    ]
    if any(not _is_slower(context, part, others) for part in parts):
        return None  # one of its stages, not the host
    if compared.time_ratio - 1 < EXPLAINED_SHARE * more or compared.work_ratio - 1 > (1 - EXPLAINED_SHARE) * more:
        return None
    factors = np.ones(context.timeline.known.shape)
    factors[rank_rows] = 1 / compared.time_ratio
    return RuleFinding(
        id="slow-host",
        subject=Subject(ranks=context.global_ranks(rank_rows), hosts=hosts),
        gain=context.gain(scale_self_time(context.replay, context.replay.costs, factors)),
        confidence=_host_confidence(context, rank_rows, others, compared.time_ratio),
        amount=Quantity(100 * (compared.time_ratio - 1), "%"),
        evidence=(
            MeasuredValue("same_kernels_time", round(100 * compared.time_ratio, 1), 100.0, "%"),
            MeasuredValue("work_at_equal_speed", round(100 * compared.work_ratio, 1), 100.0, "%"),
        ),
    )


def _is_slower(context: DiagnosisContext, rank_rows: list[int], others: list[int]) -> bool:
    """Whether the same kernels take longer here; ranks that record none are not held against the others."""
    compared = compare_kernel_speed(context.run, context.global_ranks(rank_rows), context.global_ranks(others))
    return compared is None or compared.time_ratio >= SLOWER_FACTOR


def _host_confidence(context: DiagnosisContext, rank_rows: list[int], others: list[int], ratio: float) -> float:
    """Over the host's ranks that record kernels: the same ones take longer on each."""
    peers = context.global_ranks(others)
    each = [compare_kernel_speed(context.run, context.global_ranks([row]), peers) for row in rank_rows]
    return nearer([one.time_ratio for one in each if one is not None], [], at=ratio, normal=1.0)


def _heavy_stages(typical: dict[int, float], mean: float, worst: int) -> tuple[int, ...]:
    """Stages with about as much excess as the worst one."""
    least = max(UNEVEN_FACTOR * mean, mean + ALIKE_SHARE * (typical[worst] - mean))
    return tuple(sorted(stage for stage, time in typical.items() if time >= least))


def _stage_confidence(
    context: DiagnosisContext, stages: dict[int, tuple[int, ...]], heavy: tuple[int, ...], typical: dict[int, float]
) -> float:
    """Over ranks × steps: those of the heavy stages take longer, those of the others do not."""
    usual = [time for stage, time in typical.items() if stage not in heavy]
    most, normal = float(np.mean([typical[stage] for stage in heavy])), float(np.mean(usual))
    ours = [row for stage in heavy for row in stages[stage]]
    theirs = [row for stage, rows in stages.items() if stage not in heavy for row in rows]
    return nearer(context.self_time[ours], context.self_time[theirs], at=most, normal=normal)


def _step_with_equal_stages(
    context: DiagnosisContext, stages: dict[int, tuple[int, ...]], heavy: tuple[int, ...], typical: dict[int, float]
) -> MeasuredValue:
    """What faster cards would gain, for comparison with another split."""
    usual = float(np.median([time for stage, time in typical.items() if stage not in heavy]))
    factors = np.ones(context.timeline.known.shape)
    for stage in heavy:
        factors[list(stages[stage])] = usual / typical[stage]
    equal = scale_self_time(context.replay, context.replay.costs, factors)
    if computing_by_name(context.replay, context.replay.costs, list(stages.values())).any():
        places = [place for place, stage in enumerate(stages) if stage in heavy]
        equal = lighten_stages(context.replay, context.replay.costs, list(stages.values()), places)
    gain = context.gain(equal)
    fixed, now = round(gain.step_ms_fixed, 3), round(gain.step_ms_now, 3)
    named = ", ".join(map(str, heavy))
    return MeasuredValue("step_with_equal_stage", fixed, now, "ms", {"stages": named})


def _fast_stage_self_time(typical: dict[int, float]) -> float:
    """Self time of the stages in the faster half."""
    return float(np.median(sorted(typical.values())[: (len(typical) + 1) // 2]))
