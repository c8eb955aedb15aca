"""What the host does to everybody: input that comes late, launches that come late, operators on the wrong processor."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.analysis.fixes import less_own, sooner
from paceline.analysis.peers import nan_median
from paceline.tables import INPUT_WAIT

INPUT_SHARE = 0.05
FREE_SHARE = 0.06
CPU_SHARE = 0.03
MOST = 0.25
"""Three quarters of the ranks must suffer before it is everybody's trouble; single ranks are rules/compute.py's."""
USUAL_START = 0.005
"""Share of a step that beginning it takes anyway."""


def input_bound(case: Case) -> list[Finding]:
    """Most ranks wait for their batch before they begin."""
    wait = case.matrix(INPUT_WAIT)
    share = nan_median(wait / (case.step_ms * 1e6)) if case.step_ms else np.zeros(0)
    share = share[~np.isnan(share)]
    if not len(share) or float(np.quantile(share, MOST)) < INPUT_SHARE:
        return []
    usual = USUAL_START * case.step_ms * 1e6
    less = np.maximum(0, np.nan_to_num(wait) - usual)
    return [
        Finding(
            id="input-bound",
            subject=Subject(
                ranks=tuple(place.rank for place in case.places), hosts=case.hosts_of(list(range(len(case.places))))
            ),
            gain=case.gain(sooner(case.replay, case.replay.costs, less)),
            confidence=0.9,
            amount=f"{100 * float(np.median(share)):.0f} %",
            evidence=(Evidence("wait for input", round(float(np.nanmedian(wait)) / 1e6, 3), None, "ms a step"),),
        )
    ]


def host_bound(case: Case) -> list[Finding]:
    """Most ranks idle between kernels, waiting neither for input nor for others."""
    free = case.matrix("free")
    begin = np.nan_to_num(case.matrix(INPUT_WAIT))
    gaps = np.maximum(0, free - begin)
    share = nan_median(gaps / (case.step_ms * 1e6)) if case.step_ms else np.zeros(0)
    share = share[~np.isnan(share)]
    if not len(share) or float(np.quantile(share, MOST)) < FREE_SHARE:
        return []
    pressed = _memory_calls(case)
    if pressed:
        return []
    less = np.maximum(0, gaps - 0.015 * case.step_ms * 1e6)
    return [
        Finding(
            id="host-bound",
            subject=Subject(
                ranks=tuple(place.rank for place in case.places), hosts=case.hosts_of(list(range(len(case.places))))
            ),
            gain=case.gain(less_own(case.replay, case.replay.costs, less)),
            confidence=0.85,
            amount=f"{100 * float(np.median(share)):.0f} %",
            evidence=(
                Evidence("device idle between kernels", round(float(np.nanmedian(gaps)) / 1e6, 3), None, "ms a step"),
            ),
        )
    ]


def _memory_calls(case: Case) -> bool:
    """Whether device memory is allocated and freed during steps: then memory is the cause, see memory_pressure."""
    rows = case.rows(
        "SELECT count(*) FROM host_calls WHERE lower(name) LIKE '%malloc%' OR lower(name) LIKE '%aclrtfree%'"
    )
    return bool(rows[0][0])


def cpu_operators(case: Case) -> list[Finding]:
    """Operators that run on the device's CPU because no AI Core version exists or fits."""
    rows = case.rows(
        """
        SELECT type, sum(duration) FILTER (core = 'AI_CPU') AS slow, count(DISTINCT rank)
        FROM kernels GROUP BY type HAVING slow > 0 ORDER BY slow DESC
        """
    )
    total = case.rows(
        "SELECT sum(duration), count(DISTINCT rank), count(DISTINCT (rank, step)) FROM kernels "
        "WHERE core IS DISTINCT FROM 'COMMUNICATION'"
    )[0]
    if not rows or not total[0]:
        return []
    slow = sum(float(row[1]) for row in rows)
    if slow < CPU_SHARE * float(total[0]):
        return []
    per_step = slow / max(1, total[2])
    less = np.full(case.line.known.shape, per_step * 0.95)
    return [
        Finding(
            id="cpu-operators",
            subject=Subject(operators=tuple(row[0] for row in rows[:5])),
            gain=case.gain(less_own(case.replay, case.replay.costs, less)),
            confidence=0.9,
            amount=f"{100 * slow / float(total[0]):.0f} %",
            evidence=(Evidence("time on the AI CPU", round(per_step / 1e6, 3), None, "ms a step"),),
        )
    ]
