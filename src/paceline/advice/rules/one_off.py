"""What happened once: a step that was long, and whose collective it was; the finding itself, for pauses of ranks too."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Gain, Subject

SHARE = 0.1
"""A transfer that once took this share of a step longer than usual …"""
TIMES = 3.0
"""… and this many times as long as usual."""
MOST_NAMED = 6
FEWEST = 4
"""Steps from which there is a usual."""


def one_off(case: Case, places: list[int], columns: list[int], lost: float, *, at_least: str) -> Finding:
    """These ranks made these steps longer, by `lost` ms in all."""
    times = case.replay.base.step_times
    mean, steps = float(np.mean(times)) / 1e6, tuple(int(step) for step in case.line.steps[columns])
    return Finding(
        id="one-off-stall",
        subject=Subject(ranks=case.ranks_of(places), hosts=case.hosts_of(places), steps=steps),
        gain=Gain(mean, mean - lost / len(case.line.steps)),
        confidence=0.95,
        chronic=False,
        amount=f"{lost:.0f} ms",
        detail=f"step{'s' if len(steps) > 1 else ''} {_listed(steps)}",
        evidence=(Evidence("step time", round(float(np.max(times[columns])) / 1e6, 3), round(case.step_ms, 3), "ms"),),
        at_least=at_least,
    )


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps[:MOST_NAMED])) + (" …" if len(steps) > MOST_NAMED else "")


def one_off_transfers(case: Case) -> list[Finding]:
    """Collectives that once took much longer than the same one in other steps, with everybody there."""
    events, line = case.line.events, case.line
    if len(line.steps) < FEWEST:
        return []
    long = np.flatnonzero(events.transfer > SHARE * case.step_ms * 1e6)
    if not len(long):
        return []
    unusual = [instance for instance in long.tolist() if _unusual(case, instance)]
    findings = []
    step_of = line.step[events.first_row]
    for column in sorted({int(step_of[instance]) for instance in unusual}):
        here = [instance for instance in unusual if step_of[instance] == column]
        transfer = case.replay.costs.transfer.copy()
        transfer[here] = [_usual(case, instance) for instance in here]
        fixed = case.replay.run(case.replay.costs.with_transfer(transfer))
        lost = float(case.replay.base.step_times[column] - fixed.step_times[column]) / 1e6
        if lost >= SHARE * case.step_ms:
            places = np.unique(events.rank[np.isin(events.instance, here)]).tolist()
            findings.append(one_off(case, places, [column], lost, at_least="low"))
    return findings if len(findings) <= max(1, len(line.steps) // 3) else []


def _unusual(case: Case, instance: int) -> bool:
    usual, took = _usual(case, instance), float(case.line.events.transfer[instance])
    return took > TIMES * usual and took - usual > SHARE * case.step_ms * 1e6


def _usual(case: Case, instance: int) -> float:
    """The median time of the same collective over the steps; what it took where there are too few."""
    events, line, row = case.line.events, case.line, int(case.line.events.first_row[instance])
    same = np.flatnonzero(
        (events.rank == events.rank[row]) & (line.place == line.place[row]) & (events.tie == events.tie[row])
    )
    times = events.transfer[events.instance[same]]
    return float(np.median(times)) if len(times) >= FEWEST else float(events.transfer[instance])
