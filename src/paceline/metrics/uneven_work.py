"""Work that is dealt unevenly: kernels at the same place of the program that get more rows (tokens) on some ranks.

A place is the k-th kernel of a type in a step. Rows are the first dimension of its first input, or, where all peers have the
same there, the second: the gradient of a weight sums over tokens. Among peers that all run it, with rows r, time t and their
means R, T there:

    uneven    max(r) > (1 + UNEVEN) R
    explained correlation of r / R with t / T over all uneven places of a type >= LIKE: more rows take longer, in proportion
    extra     Σ over uneven places of t (1 - R / r), per rank and step: what a rank would be spared of, or given
    more      extra less the median extra of the fast half: what excess over the reference (metrics/peers.py) is made of

so a rank that takes longer for the same rows is slow, and one that takes longer for more rows is not. Where kernels have no
shapes, what ranks send or get in an all-to-all stands for rows, and the work before it for time, at the places of the program
where one goes with the other: experts send back what they computed. There extra is Σ (t - T).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import fast_half
from paceline.metrics.steps import in_steps
from paceline.metrics.table import RunTables
from paceline.metrics.timeline.rank_timeline import Timeline

Floats = NDArray[np.float64]
UNEVEN = 0.05
LIKE = 0.8
ALL_TO_ALL = "all_to_all"
"""Tokens reach experts, and come back, by this operation."""


@dataclass(frozen=True)
class UnevenWork:
    """Of one group of peers."""

    ranks: tuple[int, ...]
    types: tuple[str, ...]
    """Of kernels whose rows differ, most time first; none where payloads stand for rows."""
    rows: dict[int, float]
    """Rows, or bytes, per step and rank in these places."""
    extra: dict[int, float]
    """ns per step and rank; negative where a rank has less than the mean."""
    peak: float
    """Most rows over the mean, in one place."""
    correlation: float
    """Of time with rows."""

    def more(self, rank: int) -> float:
        """ns per step that a rank computes longer than its reference because it has more rows."""
        times = np.array(list(self.extra.values()))
        return self.extra.get(rank, 0.0) - float(np.median(times[fast_half(times)]))


def uneven_work(run: RunTables, peers: Sequence[int], steps: Sequence[int]) -> UnevenWork | None:
    """Of these peers; None where no rows were recorded, or all have about the same."""
    run.load(["kernels"])
    columns = run.sql(_places(peers, list(steps))).fetchnumpy()
    if not len(columns["rank"]):
        return None
    rank, rows, time = (columns[name].astype(np.float64) for name in ("rank", "rows", "duration"))
    types = columns["type"].astype(str)
    over_rows, over_time = rows / columns["mean_rows"], time / columns["mean_time"]
    kept = np.isin(types, [each for each in np.unique(types) if _follows(over_rows, over_time, types == each)])
    if not kept.any():
        return None
    named = sorted(np.unique(types[kept]).tolist(), key=lambda each: -float(time[types == each].sum()))
    return _of_places(
        peers,
        named,
        _Places(rank[kept], rows[kept], time[kept], over_rows[kept], _correlation(over_rows[kept], over_time[kept])),
        len(steps),
    )


def uneven_payload(line: Timeline, rank_rows: Sequence[int]) -> UnevenWork | None:
    """As `uneven_work`, of what ranks send in all-to-all."""
    events = line.events
    own = events.is_op(ALL_TO_ALL) & np.isin(events.rank, rank_rows) & (events.bytes > 0)
    chosen = np.flatnonzero(own)
    _, place = np.unique(
        line.step[chosen] * (int(line.place.max(initial=0)) + 1) + line.place[chosen], return_inverse=True
    )
    size, time = events.bytes[chosen].astype(np.float64), line.work[chosen].astype(np.float64)
    count = np.maximum(1, np.bincount(place))
    mean_size, mean_time = (np.bincount(place, values) / count for values in (size, time))
    most = np.zeros(len(count))
    np.maximum.at(most, place, size)
    used = (count == len(rank_rows)) & (most > (1 + UNEVEN) * mean_size) & (mean_time > 0)
    kept = used[place]
    over_rows, over_time = (
        np.divide(values, means[place], out=np.ones(len(place)), where=kept)
        for values, means in ((size, mean_size), (time, mean_time))
    )
    if not _follows(over_rows, over_time, kept):
        # What experts get is as uneven as what they send back, but only before the latter they have computed it.
        at = line.place[chosen]
        kept &= np.isin(
            at, [each for each in np.unique(at[kept]) if _follows(over_rows, over_time, kept & (at == each))]
        )
    if not kept.any():
        return None
    ranks = events.ranks[events.rank[chosen]].astype(np.float64)
    peers = events.ranks[list(rank_rows)].tolist()
    places = _Places(
        ranks[kept], size[kept], time[kept], over_rows[kept], _correlation(over_rows[kept], over_time[kept])
    )
    # The larger of both directions is recorded, which does not tell how little a rank got: its time does.
    extra = time[kept] - mean_time[place[kept]]
    found = _of_places(peers, [], places, len(line.steps))
    return replace(
        found, extra={number: float(extra[places.rank == number].sum()) / len(line.steps) for number in peers}
    )


@dataclass(frozen=True)
class _Places:
    """Kernels, or collectives, in uneven places."""

    rank: Floats
    rows: Floats
    time: Floats
    over: Floats
    """Rows over the mean of the place."""
    correlation: float


def _of_places(peers: Sequence[int], types: Sequence[str], found: _Places, steps: int) -> UnevenWork:
    extra = found.time * (1 - 1 / found.over)
    return UnevenWork(
        tuple(peers),
        tuple(types),
        {number: float(found.rows[found.rank == number].sum()) / steps for number in peers},
        {number: float(extra[found.rank == number].sum()) / steps for number in peers},
        float(found.over.max()),
        found.correlation,
    )


def _follows(rows: Floats, time: Floats, chosen: NDArray[np.bool_]) -> bool:
    """Whether time goes with rows."""
    return int(chosen.sum()) > 3 and _correlation(rows[chosen], time[chosen]) >= LIKE


def _correlation(x: Floats, y: Floats) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else 0.0


def _places(peers: Sequence[int], steps: list[int]) -> str:
    """SELECT of every kernel in an uneven place, with the means of that place."""
    return f"""
        WITH shaped AS (
            SELECT rank, step, type, start, duration,
                   TRY_CAST(regexp_extract(input_shapes, '^"?([0-9]+),', 1) AS BIGINT) AS outer_rows,
                   TRY_CAST(regexp_extract(input_shapes, '^"?[0-9]+,([0-9]+)', 1) AS BIGINT) AS inner_rows
            FROM kernels
            WHERE rank IN ({", ".join(map(str, peers)) or "NULL"}) AND {in_steps(steps)}
              AND type IS NOT NULL AND duration > 0 AND core IS DISTINCT FROM 'COMMUNICATION'
        ), placed AS (
            SELECT *, row_number() OVER (PARTITION BY rank, step, type ORDER BY start) AS place
            FROM shaped WHERE outer_rows > 0
        ), sized AS (
            SELECT rank, step, type, duration, place,
                   CASE WHEN min(outer_rows) OVER here = max(outer_rows) OVER here AND inner_rows > 0
                        THEN inner_rows ELSE outer_rows END AS rows
            FROM placed WINDOW here AS (PARTITION BY step, type, place)
        ), compared AS (
            SELECT *, count(*) OVER here AS ranks, avg(rows) OVER here AS mean_rows, max(rows) OVER here AS most,
                   avg(duration) OVER here AS mean_time
            FROM sized WINDOW here AS (PARTITION BY step, type, place)
        )
        SELECT rank, type, rows, duration, mean_rows, mean_time FROM compared
        WHERE ranks = {len(peers)} AND most > {1 + UNEVEN} * mean_rows
    """
