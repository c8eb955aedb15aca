"""Steps that differ: one stall, work that is dealt unevenly from step to step, or jitter everywhere."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from paceline.advice.case import Case, Floats
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.advice.rules.communication import gradient_groups
from paceline.advice.rules.one_off import one_off, one_off_transfers
from paceline.analysis.events import PEER_TO_PEER
from paceline.analysis.fixes import evened, like_peers, scale_own, steadied
from paceline.analysis.peers import nan_median
from paceline.analysis.replay import Costs
from paceline.tables import INPUT_WAIT

STALL = 0.08
"""One step of one rank this much longer than its peers' and than its own other steps."""
SPREAD = 0.04
"""Typical distance of the slowest from the median rank, step by step, that is worth a name."""
SHARED = 0.5
"""Correlation of ranks of one replica above which they were dealt more work, not disturbed one by one."""


def unsteady(case: Case) -> list[Finding]:
    return _stalls(case) or one_off_transfers(case) + _uneven(case)


def _stalls(case: Case) -> list[Finding]:
    if case.own.shape[1] < 2:
        return []
    over = _over_others(case)
    noise = max(
        case.excess.noise, 1.4826 * float(np.nanmedian(np.abs(over))) if (~np.isnan(over)).any() else 0.0, 0.003
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        unusual = case.own / _undisturbed(case.own)[:, None] - 1
        peak = (over > max(STALL, 10 * noise)) & (unusual > max(STALL, 3 * noise)) & ~_longer_everywhere(case, over)
    peak[case.excess.habitual()] = False
    steps_of = {int(row): np.flatnonzero(peak[row]).tolist() for row in np.flatnonzero(peak.any(axis=1))}
    # What happens to many ranks in many steps is no pause of one of them.
    many_ranks, many_steps = len(steps_of) > max(1, len(peak) // 8), int(peak.any(axis=0).sum()) > peak.shape[1] // 3
    if len(steps_of) > max(2, len(peak) // 4) or (many_ranks and many_steps):
        return []
    places_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, columns in steps_of.items():
        places_of[tuple(columns)].append(place)
    return [finding for steps, places in places_of.items() if (finding := _stall(case, tuple(places), list(steps)))]


def _over_others(case: Case) -> Floats:
    """Own time over the median of the other peers in that step, minus 1, ranks × steps."""
    result = np.full(case.own.shape, np.nan)
    for ranks in case.classes:
        for place in ranks if len(ranks) > 1 else ():
            others = nan_median(case.own[[rank for rank in ranks if rank != place]].T)
            with np.errstate(invalid="ignore", divide="ignore"):
                result[place] = case.own[place] / others - 1
    return result


def _undisturbed(own: Floats) -> Floats:
    """Own time of each rank in its better steps."""
    return np.array([np.nanquantile(row, 0.25) if (~np.isnan(row)).any() else np.nan for row in own])


def _stall(case: Case, places: tuple[int, ...], columns: list[int]) -> Finding | None:
    """These ranks stood still in these steps; None where nobody waited for them."""
    costs = like_peers(case.replay, case.replay.costs, places, case.excess, steps=columns)
    lost = (case.replay.base.step_times - case.replay.run(costs).step_times)[columns] / 1e6
    told = [column for column, time in zip(columns, lost, strict=True) if time >= 0.02 * case.step_ms]
    if not told:
        return None
    return one_off(case, list(places), told, float(lost.sum()), at_least="medium")


def _longer_everywhere(case: Case, over: Floats) -> NDArray[np.bool_]:
    """Ranks × steps with both parts of the step longer than the peers': more work, not a pause.

    Where a replica is several ranks, more work would show on all of them: nothing needs to be told from its parts.
    """
    if _of_one_replica(case):
        return np.zeros(case.own.shape, dtype=np.bool_)
    first, second = _parts(case)
    centred = [_centred_among(case, part) for part in (first, second)]
    with np.errstate(invalid="ignore"):
        return np.asarray((centred[0] > 0.5 * over) & (centred[1] > 0.5 * over))


def _uneven(case: Case) -> list[Finding]:
    """The slowest rank is another one in every step."""
    if case.own.shape[1] < 2:
        return []
    centred = _centred(case)
    if np.isnan(centred).all():
        return []
    worst = np.max(np.nan_to_num(centred, nan=-1.0), axis=0)
    spread = float(np.median(worst))
    if spread < SPREAD:
        return _late_begins(case)
    shared = _shared_by_replicas(case, centred)
    dealt = shared > SHARED
    if not dealt and case.excess.habitual():
        return []  # who is slow by habit may well swing, too: one name is enough
    fixed = _dealt_evenly(case) if dealt else steadied(case.replay, case.replay.costs, case.classes, quantile=0.5)
    places = sorted(
        np.argsort(-np.max(np.nan_to_num(centred, nan=-1.0), axis=1))[: max(1, len(case.places) // 4)].tolist()
    )
    return [_swings(case, fixed, spread, Subject(ranks=case.ranks_of(places)) if dealt else None)]


def _late_begins(case: Case) -> list[Finding]:
    """What swings is how late steps begin, now on this rank and now on that one."""
    worst = np.max(np.nan_to_num(_centred_among(case, case.own), nan=-1.0), axis=0)
    spread = float(np.median(worst))
    if spread < 2 * SPREAD or case.excess.habitual():
        return []
    return [_swings(case, steadied(case.replay, case.replay.costs, case.classes, quantile=0.5), spread, None)]


def _swings(case: Case, fixed: Costs, spread: float, dealt: Subject | None) -> Finding:
    """Work that was dealt unevenly to these, or noise."""
    return Finding(
        id="load-imbalance" if dealt else "jitter",
        subject=dealt or Subject(),
        gain=case.gain(fixed),
        confidence=0.85,
        amount=f"{100 * spread:.0f} %",
        evidence=(Evidence("slowest rank over the median, step by step", round(100 * spread, 1), None, "%"),),
        at_least="low" if spread >= 2 * SPREAD else "info",
        # Noise names nobody and may be the machine's nature: a busy host without any fault looks the same.
        at_most="high" if dealt else "low",
    )


def _dealt_evenly(case: Case) -> Costs:
    """The same work for all; who is slow by habit stays as slow."""
    slower = np.ones(case.own.shape)
    slow = case.excess.habitual()
    slower[slow] += case.excess.usual[slow][:, None]
    equal = scale_own(case.replay, case.replay.costs, 1 / slower)
    return scale_own(case.replay, evened(case.replay, equal, case.classes), slower)


def _centred(case: Case) -> Floats:
    """Own time, waiting for input left out, over the mean of the peers: dealt evenly, everybody would have the mean.

    Ranks that are slow by habit count as they would be without it.
    """
    own = case.own - np.nan_to_num(case.matrix(INPUT_WAIT))
    usual, slow = nan_median(own), set(case.excess.habitual())
    for ranks in case.classes:
        healthy = [rank for rank in ranks if rank not in slow]
        for place in slow.intersection(ranks):
            own[place] *= float(np.median(usual[healthy])) / usual[place] if healthy else 1.0
    return _centred_among(case, own)


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
    """Correlation, over ranks and steps, of what two parts of a step need more than the peers' mean."""
    first, second = _parts(case)
    parts = [_centred_among(case, part).ravel() for part in (first, second)]
    known = ~np.isnan(parts[0]) & ~np.isnan(parts[1])
    x, y = parts[0][known], parts[1][known]
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 3 and np.std(x) > 0 and np.std(y) > 0 else 0.0


def _parts(case: Case) -> tuple[Floats, Floats]:
    """Own time of each step in two parts: forward and backward where they are recorded, else around the first event."""
    line, events = case.line, case.line.events
    passes = [np.flatnonzero(events.op == f"{name}-compute") for name in ("forward", "backward")]
    if all(len(rows) for rows in passes):
        return _summed(case, passes[0]), _summed(case, passes[1])
    first = np.full(case.own.shape, np.nan)
    rows = np.flatnonzero(~line.is_end)[::-1]
    begin = np.concatenate([np.zeros((len(case.own), 1)), np.cumsum(case.own, axis=1)[:, :-1]], axis=1)
    first[events.rank[rows], line.step[rows]] = line.own[rows]
    first -= begin
    return first, case.own - first


def _summed(case: Case, rows: NDArray[np.int64]) -> Floats:
    """Computing of these rows, ranks × steps."""
    result = np.zeros(case.own.shape)
    np.add.at(result, (case.line.events.rank[rows], case.line.step[rows]), case.line.overlap[rows])
    return result
