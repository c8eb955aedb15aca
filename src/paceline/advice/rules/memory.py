"""Device memory: nearly full, or used very differently by ranks that do the same."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.analysis.fixes import less_own
from paceline.tables import INPUT_WAIT

FULL = 0.95
UNEVEN = 0.25


def memory_pressure(case: Case) -> list[Finding]:
    rows = [
        (rank, peak, capacity or case.hardware.memory_for(peak))
        for rank, peak, capacity in case.rows("SELECT rank, peak, capacity FROM ranks_memory WHERE peak IS NOT NULL")
    ]
    full = [(rank, peak / capacity) for rank, peak, capacity in rows if capacity and peak / capacity >= FULL]
    if not full:
        return []
    free = case.matrix("free") - np.nan_to_num(case.matrix(INPUT_WAIT))
    calls = case.rows("SELECT count(*) FROM host_calls WHERE lower(name) LIKE '%malloc%' OR lower(name) LIKE '%free%'")
    less = np.maximum(0, np.nan_to_num(free) - 0.015 * case.step_ms * 1e6) if calls[0][0] else np.zeros(free.shape)
    ranks = {rank for rank, _ in full}
    spared = {rank for rank, _, _ in rows} - ranks  # of the others nothing is known: they run the same program
    less[[i for i, place in enumerate(case.places) if place.rank in spared]] = 0
    worst = max(share for _, share in full)
    return [
        Finding(
            id="memory-pressure",
            subject=Subject(
                ranks=tuple(sorted(ranks)),
                hosts=tuple(sorted({p.host for p in case.places if p.host and p.rank in ranks})),
            ),
            gain=case.gain(less_own(case.replay, case.replay.costs, less)),
            confidence=0.85,
            amount=f"{100 * worst:.0f} %",
            evidence=(Evidence("peak of device memory", round(100 * worst, 1), None, "%"),),
            at_least="medium",
        )
    ]


def memory_imbalance(case: Case) -> list[Finding]:
    peaks = dict(case.rows("SELECT rank, peak FROM ranks_memory WHERE peak IS NOT NULL"))
    values = np.array([[peaks.get(place.rank, np.nan)] for place in case.places], dtype=np.float64)
    uneven = []
    for ranks in case.classes:
        rows = list(ranks)
        if len(rows) < 2 or np.isnan(values[rows]).all():
            continue
        usual = float(np.nanmedian(np.sort(values[rows].ravel())[: (len(rows) + 1) // 2]))
        uneven += [(place, float(values[place, 0]), usual) for place in rows if values[place, 0] > (1 + UNEVEN) * usual]
    if not uneven or len(uneven) > len(case.places) // 2:
        return []
    places = [place for place, _, _ in uneven]
    worst = max(uneven, key=lambda entry: entry[1] / entry[2])
    return [
        Finding(
            id="memory-imbalance",
            subject=Subject(ranks=case.ranks_of(places), hosts=case.hosts_of(places)),
            gain=case.no_gain(),
            confidence=0.9,
            amount=f"{100 * (worst[1] / worst[2] - 1):.0f} %",
            evidence=(
                Evidence("peak of device memory", round(worst[1] / 2**30, 2), round(worst[2] / 2**30, 2), "GiB"),
            ),
            at_least="medium",
        )
    ]
