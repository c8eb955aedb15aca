"""Pipeline stages: uneven work, and too few micro-batches to fill them."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Gain, Subject
from paceline.analysis.fixes import balanced, scale_own
from paceline.analysis.peers import nan_median

UNEVEN = 1.06
"""The slowest stage needs this much more than the mean stage."""
BUBBLE = 0.3
"""Idle share of an even pipeline, (p - 1) / (m + p - 1), that is worth changing."""
SLOWER = 1.04
"""Kernels of the same shapes take this much longer on a slow host."""
SMALLER = 4
"""The advice: this many times as many micro-batches, each as much smaller."""


def stage_imbalance(case: Case) -> list[Finding]:
    stages = _stages(case)
    if len(stages) < 2:
        return []
    typical = _typical(case, stages)
    mean = float(np.mean(list(typical.values())))
    worst = max(typical, key=lambda stage: typical[stage])
    if typical[worst] < UNEVEN * mean:
        return []
    ranks = stages[worst]
    host = _same_program_other_host(case, stages, worst)
    if host:
        return [_slow_host(case, host, ranks, typical, worst)]
    return [
        Finding(
            id="stage-imbalance",
            subject=Subject(ranks=case.ranks_of(list(ranks)), stages=(worst,)),
            gain=case.gain(balanced(case.replay, case.replay.costs, list(stages.values()))),
            confidence=0.95 if typical[worst] > 1.15 * mean else 0.85,
            amount=f"{100 * (typical[worst] / mean - 1):.0f} %",
            evidence=(
                *(Evidence(f"own time of stage {s}", round(t / 1e6, 3), round(mean / 1e6, 3), "ms")
                  for s, t in sorted(typical.items())),
                _if_like_the_others(case, ranks, typical, worst),
            ),
        )
    ]  # fmt: skip


def pipeline_bubble(case: Case) -> list[Finding]:
    stages = _stages(case)
    if len(stages) < 2:
        return []
    events, line = case.line.events, case.line
    received = np.flatnonzero(np.isin(events.op.astype(str), ("receive", "send_receive")) & ~line.is_end)
    if not len(received):
        return []
    per_step = np.bincount(events.rank[received], minlength=len(case.places)) / np.maximum(1, line.known.sum(axis=1))
    micro_batches = float(np.median(per_step[per_step > 0]))
    if len(stages) - 2 > 0:  # inner stages receive forward and backward
        inner = [place for place in range(len(case.places)) if 0 < case.stages[place] < len(stages) - 1]
        micro_batches = float(np.median(per_step[inner])) / 2 if inner else micro_batches
    bubble = (len(stages) - 1) / (micro_batches + len(stages) - 1)
    if bubble < BUBBLE:
        return []
    # Filling and draining takes one micro-batch of each other stage; smaller ones fill as much faster. What a slow rank
    # or stage makes the others wait for is not the schedule's, so stages count as their fast halves need.
    filling = (len(stages) - 1) * float(np.mean(list(_typical(case, stages).values()))) / micro_batches
    now = case.step_ms
    fixed = now - (1 - 1 / SMALLER) * filling / 1e6
    return [
        Finding(
            id="pipeline-bubble",
            subject=Subject(stages=tuple(sorted(stages))),
            gain=Gain(now, fixed),
            confidence=0.9,
            amount=f"{100 * bubble:.0f} %",
            detail=f"{micro_batches:.0f}",
            evidence=(
                Evidence("micro-batches a step", round(micro_batches, 1), None, ""),
                Evidence("idle share of an even pipeline", round(100 * bubble, 1), None, "%"),
            ),
        )
    ]


def _stages(case: Case) -> dict[int, tuple[int, ...]]:
    return {
        int(stage): tuple(int(place) for place in np.flatnonzero(case.stages == stage))
        for stage in np.unique(case.stages)
        if stage >= 0
    }


def _typical(case: Case, stages: dict[int, tuple[int, ...]]) -> dict[int, float]:
    """Own time of each stage, ns: its fast half speaks for it, so that one slow rank does not look like a slow stage."""
    own = nan_median(case.own)
    return {
        stage: float(np.nanmedian(np.sort(own[list(ranks)])[: (len(ranks) + 1) // 2]))
        for stage, ranks in stages.items()
    }


def _same_program_other_host(case: Case, stages: dict[int, tuple[int, ...]], worst: int) -> str | None:
    """The host of a slow stage that takes longer for the same work, kernels of equal shapes: then it is slow, not the split."""
    hosts = case.hosts_of(list(stages[worst]))
    if len(hosts) != 1:
        return None
    others = [ranks for stage, ranks in stages.items() if stage != worst]
    if any(hosts[0] in case.hosts_of(list(ranks)) for ranks in others):
        return None
    mine = _kernel_speed(case, stages[worst])
    theirs = [speed for ranks in others if (speed := _kernel_speed(case, ranks))]
    if not mine or not theirs:
        return None
    # Without shapes nothing tells a slow card from more work in each kernel: the advice names the host as a possibility.
    shared = {(kind, shapes) for kind, shapes in set(mine).intersection(*theirs) if shapes}
    ratios = [mine[kind] / float(np.median([speed[kind] for speed in theirs])) for kind in shared]
    return hosts[0] if ratios and float(np.median(ratios)) > SLOWER else None


def _kernel_speed(case: Case, places: tuple[int, ...]) -> dict[tuple[str, str], float]:
    """Median duration of each kind of kernel (type and shapes, where recorded) on these ranks."""
    ranks = ", ".join(str(case.places[place].rank) for place in places)
    rows = case.rows(
        f"""
        SELECT type, coalesce(input_shapes, ''), median(duration) FROM kernels
        WHERE rank IN ({ranks}) AND type IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION' GROUP BY ALL
        """
    )
    return {(kind, shapes): float(duration) for kind, shapes, duration in rows if duration}


def _slow_host(case: Case, host: str, ranks: tuple[int, ...], typical: dict[int, float], worst: int) -> Finding:
    usual = _usual(typical, worst)
    return Finding(
        id="slow-host",
        subject=Subject(ranks=case.ranks_of(list(ranks)), hosts=(host,)),
        gain=_gain_like_the_others(case, ranks, typical, worst),
        confidence=0.9,
        amount=f"{100 * (typical[worst] / usual - 1):.0f} %",
        evidence=(Evidence("own time a step", round(typical[worst] / 1e6, 3), round(usual / 1e6, 3), "ms"),),
    )


def _if_like_the_others(case: Case, ranks: tuple[int, ...], typical: dict[int, float], worst: int) -> Evidence:
    """What faster cards would give, beside what another split gives."""
    gain = _gain_like_the_others(case, ranks, typical, worst)
    fixed, now = round(gain.step_ms_fixed, 3), round(gain.step_ms_now, 3)
    return Evidence(f"step if stage {worst} took as long as the others", fixed, now, "ms")


def _gain_like_the_others(case: Case, ranks: tuple[int, ...], typical: dict[int, float], worst: int) -> Gain:
    factors = np.ones(case.line.known.shape)
    factors[list(ranks)] = _usual(typical, worst) / typical[worst]
    return case.gain(scale_own(case.replay, case.replay.costs, factors))


def _usual(typical: dict[int, float], worst: int) -> float:
    return float(np.median([time for stage, time in typical.items() if stage != worst]))
