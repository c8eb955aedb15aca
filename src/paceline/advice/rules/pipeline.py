"""Pipeline stages: uneven work, and too few micro-batches to fill them."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Gain, Subject
from paceline.analysis.fixes import balanced, scale_own
from paceline.analysis.pace import pace
from paceline.analysis.peers import nan_median

UNEVEN = 1.06
"""The slowest stage needs this much more than the mean stage."""
ALIKE = 0.6
"""Stages with this share of the worst one's surplus are named beside it."""
BUBBLE = 0.3
"""Idle share of an even pipeline, (p - 1) / (m + p - 1), that is worth changing."""
SLOWER = 1.04
"""Kernels of the same shapes take this much longer on a slow host."""
MOSTLY = 0.5
"""The share of what a stage takes longer that slow kernels must explain."""
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
    heavy = _as_heavy(typical, mean, worst)
    ranks = tuple(place for stage in heavy for place in stages[stage])
    host = _slow_host(case, stages[worst], typical[worst] / _least(typical) - 1)
    if host:
        return [host]
    return [
        Finding(
            id="stage-imbalance",
            subject=Subject(ranks=case.ranks_of(list(ranks)), stages=heavy),
            gain=case.gain(balanced(case.replay, case.replay.costs, list(stages.values()))),
            confidence=0.95 if typical[worst] > 1.15 * mean else 0.85,
            amount=f"{100 * (typical[worst] / mean - 1):.0f} %",
            evidence=(
                *(Evidence(f"own time of stage {s}", round(t / 1e6, 3), round(mean / 1e6, 3), "ms")
                  for s, t in sorted(typical.items())),
                _if_like_the_others(case, stages, heavy, typical),
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


def _slow_host(case: Case, worst: tuple[int, ...], more: float) -> Finding | None:
    """The host of a slow stage, if it takes longer for the same work: then it is slow, not the split uneven.

    `more` is how much longer the stage takes than the others, as a share. Ranks of the host that record no kernels are taken
    to be as the others are.
    """
    hosts = case.hosts_of(list(worst))
    places = [i for i, place in enumerate(case.places) if place.host == hosts[0]] if len(hosts) == 1 else []
    others = [i for i in range(len(case.places)) if i not in places]
    if not places or not others:
        return None
    compared = pace(case.run, case.ranks_of(places), case.ranks_of(others))
    if compared is None or compared.slower < SLOWER or not compared.shapes:
        return None  # kernels that take longer may be larger ones: a stage of a pipeline has a program of its own
    stages = {int(case.stages[place]) for place in places}
    parts = [[place for place in places if case.stages[place] == stage] for stage in stages if len(stages) > 1]
    if any(not _is_slower(case, part, others) for part in parts):
        return None  # one of its stages, not the host
    if compared.slower - 1 < MOSTLY * more or compared.bigger - 1 > (1 - MOSTLY) * more:
        return None
    factors = np.ones(case.line.known.shape)
    factors[places] = 1 / compared.slower
    return Finding(
        id="slow-host",
        subject=Subject(ranks=case.ranks_of(places), hosts=hosts),
        gain=case.gain(scale_own(case.replay, case.replay.costs, factors)),
        confidence=0.9,
        amount=f"{100 * (compared.slower - 1):.0f} %",
        evidence=(
            Evidence("the same kernels, time here", round(100 * compared.slower, 1), 100.0, "%"),
            Evidence("work a step at equal speed", round(100 * compared.bigger, 1), 100.0, "%"),
        ),
    )


def _is_slower(case: Case, places: list[int], others: list[int]) -> bool:
    """Whether the same kernels take longer here; ranks that record none are not held against the others."""
    compared = pace(case.run, case.ranks_of(places), case.ranks_of(others))
    return compared is None or compared.slower >= SLOWER


def _as_heavy(typical: dict[int, float], mean: float, worst: int) -> tuple[int, ...]:
    """Stages that have about as much too much as the worst one."""
    least = max(UNEVEN * mean, mean + ALIKE * (typical[worst] - mean))
    return tuple(sorted(stage for stage, time in typical.items() if time >= least))


def _if_like_the_others(
    case: Case, stages: dict[int, tuple[int, ...]], heavy: tuple[int, ...], typical: dict[int, float]
) -> Evidence:
    """What faster cards would give, beside what another split gives."""
    usual = float(np.median([time for stage, time in typical.items() if stage not in heavy]))
    factors = np.ones(case.line.known.shape)
    for stage in heavy:
        factors[list(stages[stage])] = usual / typical[stage]
    gain = case.gain(scale_own(case.replay, case.replay.costs, factors))
    fixed, now = round(gain.step_ms_fixed, 3), round(gain.step_ms_now, 3)
    named = ", ".join(map(str, heavy))
    return Evidence(f"step if stage {named} took as long as the others", fixed, now, "ms")


def _least(typical: dict[int, float]) -> float:
    """Own time of the stages in the faster half."""
    return float(np.median(sorted(typical.values())[: (len(typical) + 1) // 2]))
