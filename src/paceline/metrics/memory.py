"""Device memory: peaks and what is left, who uses more than its peers, use over time, allocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import PeerGroups, excess_over_peers
from paceline.metrics.table import Source, Table, query

Floats = NDArray[np.float64]

MOST_POINTS = 4_000
"""Of one curve: more than a screen has columns."""


def rank_memory(
    run: Source, ranks: Sequence[int], groups: PeerGroups, capacity_for: Callable[[int], int | None] | None = None
) -> Table:
    """Per rank the peak of its device memory in bytes, against what there is and against its peers.

        headroom  = capacity - peak                        unknown where the recording does not tell the capacity
        share     = peak / capacity; where that was not recorded, of the memory the user named (`capacity_for`), else unknown
        reference = median of the lower half of the peaks of its peers, excess = peak / reference - 1

    `groups` are rows of `ranks`, see metrics/peers.py; a rank without peers has no reference.
    """
    table = query(
        run,
        """
        SELECT rank, peak, capacity, capacity - peak AS headroom, static, basis FROM ranks_memory
        WHERE peak IS NOT NULL ORDER BY rank
        """,
    )
    peak, capacity = table.numbers["peak"], table.numbers["capacity"]
    named = [None if capacity_for is None else capacity_for(int(size)) for size in peak]
    assumed = np.array(named, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = peak / np.where(capacity > 0, capacity, assumed)
    compared = _compared(dict(zip(table.numbers["rank"].tolist(), peak.tolist(), strict=True)), ranks, groups)
    found = [compared.get(rank, (np.nan, np.nan)) for rank in table.numbers["rank"].tolist()]
    reference, excess = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return Table({**table.numbers, "share": share, "reference": reference, "excess": excess}, table.texts)


def _compared(
    peaks: Mapping[float, float], ranks: Sequence[int], groups: PeerGroups
) -> dict[float, tuple[float, float]]:
    """Reference and excess by rank."""
    values = np.array([[peaks.get(rank, np.nan)] for rank in ranks], dtype=np.float64).reshape(-1, 1)
    excess = excess_over_peers(values, groups)
    columns = (excess.median_reference.tolist(), excess.per_rank.tolist())
    return dict(zip(map(float, ranks), zip(*columns, strict=True), strict=True))


def memory_curve(run: Source, rank: int, *, most: int = MOST_POINTS) -> Table:
    """A rank's memory in bytes by time (s since its first sample) or by node of the graph, at most `most` points per series.

    Points that fall on the same place keep their maximum, so that a peak is never lost.
    """
    return query(
        run,
        """
        WITH
        points AS (
            SELECT coalesce(name, '') AS name, kind, coalesce((time - min(time) OVER ()) / 1e9, position) AS x,
                   allocated, reserved, active
            FROM memory WHERE rank = $rank AND kind IN ('sample', 'node') AND (time IS NOT NULL OR position IS NOT NULL)
        ),
        placed AS (
            SELECT *, floor(x / nullif(max(x) OVER (), 0) * $most) AS pixel, if(kind = 'node', '', name) AS series
            FROM points
        )
        SELECT series, kind, min(x) AS x, max(allocated) AS allocated, max(reserved) AS reserved,
               max(active) AS active, arg_max(name, allocated) AS name
        FROM placed GROUP BY series, kind, pixel ORDER BY series, x
        """,
        rank=rank,
        most=most,
    )


ALLOCATIONS = """
    SELECT rank, name, kind, coalesce(size, allocated) AS size, lifetime / 1e6 AS lifetime, allocated, position
    FROM memory WHERE kind IN ('operator', 'node')
"""
"""What took a rank's memory: single allocations, or nodes of the graph where memory was planned; bytes, ms."""
