"""Steps that differ: one stall, work that is dealt unevenly from step to step, or jitter everywhere."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case, Floats
from paceline.advice.finding import Evidence, Finding, Gain, Subject
from paceline.advice.rules.communication import gradient_groups
from paceline.analysis.events import PEER_TO_PEER
from paceline.analysis.fixes import evened, like_peers, steadied
from paceline.analysis.peers import nan_median

STALL = 0.15
"""One step of one rank this much longer than its peers' and than its own other steps."""
SPREAD = 0.04
"""Typical distance of the slowest from the median rank, step by step, that is worth a name."""
SHARED = 0.5
"""Correlation of ranks of one replica above which they were dealt more work, not disturbed one by one."""


def unsteady(case: Case) -> list[Finding]:
    stalls = _stalls(case)
    if stalls:
        return stalls
    return _uneven(case)


def _stalls(case: Case) -> list[Finding]:
    relative = case.excess.relative
    if relative.shape[1] < 2:
        return []
    own_usual = nan_median(case.own)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        unusual = case.own / own_usual - 1
    noise = max(case.excess.noise, 0.003)
    peak = (relative > max(STALL, 10 * noise)) & (unusual > max(STALL, 10 * noise))
    rows, columns = np.nonzero(peak)
    # A habit is not a one-off, and what happens to many ranks in many steps is no stall of one.
    if (
        not len(rows)
        or len(set(columns.tolist())) > max(1, relative.shape[1] // 3)
        or len(rows) > max(2, relative.shape[0] // 4)
    ):
        return []
    findings = []
    for column in sorted(set(columns.tolist())):
        places = [int(row) for row in rows[columns == column]]
        fixed = case.replay.run(like_peers(case.replay, case.replay.costs, places, case.excess, steps=[column]))
        lost = float(case.replay.base.step_times[column] - fixed.step_times[column]) / 1e6
        now = float(case.replay.base.step_times[column]) / 1e6
        mean = float(np.mean(case.replay.base.step_times)) / 1e6
        if lost < 0.02 * case.step_ms:
            continue  # nobody waited for it
        findings.append(
            Finding(
                id="one-off-stall",
                subject=Subject(
                    ranks=case.ranks_of(places), hosts=case.hosts_of(places), steps=(int(case.line.steps[column]),)
                ),
                gain=Gain(mean, mean - lost / len(case.line.steps)),
                confidence=0.95,
                chronic=False,
                amount=f"{lost:.0f} ms",
                detail=f"step {int(case.line.steps[column])}",
                evidence=(Evidence("step time", round(now, 3), round(case.step_ms, 3), "ms"),),
                at_least="medium",
            )
        )
    return findings


def _uneven(case: Case) -> list[Finding]:
    """The slowest rank is another one in every step."""
    if case.excess.habitual() or case.own.shape[1] < 2:
        return []
    centred = _centred(case)
    if np.isnan(centred).all():
        return []
    worst = np.max(np.nan_to_num(centred, nan=-1.0), axis=0)
    spread = float(np.median(worst))
    if spread < SPREAD:
        return []
    shared = _shared_by_replicas(case, centred)
    dealt = shared > SHARED
    if dealt:
        fixed = evened(case.replay, case.replay.costs, case.classes)
    else:
        fixed = steadied(case.replay, case.replay.costs, case.classes, quantile=0.5)
    gain = case.gain(fixed)
    places = sorted(
        np.argsort(-np.max(np.nan_to_num(centred, nan=-1.0), axis=1))[: max(1, len(case.places) // 4)].tolist()
    )
    return [
        Finding(
            id="load-imbalance" if dealt else "jitter",
            subject=Subject(ranks=case.ranks_of(places) if dealt else ()),
            gain=gain,
            confidence=0.85,
            amount=f"{100 * spread:.0f} %",
            evidence=(Evidence("slowest rank over the median, step by step", round(100 * spread, 1), None, "%"),),
            at_least="low" if spread >= 2 * SPREAD else "info",
            # Noise names nobody and may be the machine's nature: a busy host without any fault looks the same.
            at_most="high" if dealt else "low",
        )
    ]


def _centred(case: Case) -> Floats:
    """Own time, waiting for input left out, over the mean of the peers: dealt evenly, everybody would have the mean."""
    return _centred_among(case, case.own - np.nan_to_num(case.matrix("coalesce(data_wait, preparing)")))


def _centred_among(case: Case, values: Floats) -> Floats:
    result = np.full(values.shape, np.nan)
    for ranks in case.classes:
        rows = list(ranks)
        if len(rows) > 1:
            known = np.maximum(1, (~np.isnan(values[rows])).sum(axis=0))
            with np.errstate(invalid="ignore", divide="ignore"):
                result[rows] = values[rows] / (np.nansum(values[rows], axis=0) / known)[None, :] - 1
    return result


def _shared_by_replicas(case: Case, centred: Floats) -> float:
    """Mean correlation over steps between ranks of one replica: those that share more than the sum of gradients.

    Where every replica is one rank, between two parts of its step: more work makes all of it longer, jitter does not.
    """
    pairs = _of_one_replica(case)
    if not pairs:
        return _shared_by_parts(case)
    places = {place.rank: i for i, place in enumerate(case.places)}
    values = []
    for a, b in pairs:
        if a in places and b in places:
            x, y = centred[places[a]], centred[places[b]]
            if not np.isnan(x).any() and not np.isnan(y).any() and np.std(x) > 0 and np.std(y) > 0:
                values.append(float(np.corrcoef(x, y)[0, 1]))
    return float(np.mean(values)) if values else 0.0


def _of_one_replica(case: Case) -> list[tuple[int, int]]:
    pairs = """
        SELECT DISTINCT a.rank, b.rank FROM groups AS a JOIN groups AS b USING ("group")
        WHERE a.rank < b.rank AND {which}
    """
    declared = case.rows(pairs.format(which="a.kind IN ('tp', 'pp')"))
    summing = ", ".join(f"'{group}'" for group in gradient_groups(case)) or "NULL"
    return (
        declared
        or _talking(case)
        or case.rows(pairs.format(which=f"a.kind = 'other' AND \"group\" NOT IN ({summing})"))
    )


def _talking(case: Case) -> list[tuple[int, int]]:
    """Ranks that send to each other."""
    events = case.line.events
    rows = np.flatnonzero(np.isin(events.op.astype(str), PEER_TO_PEER) & (events.members[events.instance] == 2))
    sorted_rows = rows[np.lexsort((events.rank[rows], events.instance[rows]))].reshape(-1, 2)
    return [
        (int(events.ranks[a]), int(events.ranks[b])) for a, b in np.unique(events.rank[sorted_rows], axis=0).tolist()
    ]


def _shared_by_parts(case: Case) -> float:
    """Correlation, over ranks and steps, of what the first and the second part of a step need more than the peers' mean."""
    line, events = case.line, case.line.events
    first = np.full(case.own.shape, np.nan)
    rows = np.flatnonzero(~line.is_end)[::-1]
    begin = np.concatenate([np.zeros((len(case.own), 1)), np.cumsum(case.own, axis=1)[:, :-1]], axis=1)
    first[events.rank[rows], line.step[rows]] = line.own[rows]
    first -= begin
    parts = [_centred_among(case, part).ravel() for part in (first, case.own - first)]
    known = ~np.isnan(parts[0]) & ~np.isnan(parts[1])
    x, y = parts[0][known], parts[1][known]
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 3 and np.std(x) > 0 and np.std(y) > 0 else 0.0
