"""Device memory: peaks and what is left, who uses more than its peers, use over time, and who asks for most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.analysis.peers import excess_over_peers
from paceline.analysis.table import Source, Table, query

Floats = NDArray[np.float64]

MOST_POINTS = 4_000
"""Of one curve: more than a screen has columns."""


def memory_peaks(run: Source) -> Table:
    """Per rank the peak and the capacity of its device memory in bytes, and what is left.

    headroom = capacity - peak        (unknown where the recording does not tell the capacity)
    """
    return query(
        run,
        """
        SELECT rank, peak, capacity, capacity - peak AS headroom, basis FROM ranks_memory
        WHERE peak IS NOT NULL ORDER BY rank
        """,
    )


def memory_imbalance(peaks: Floats, classes: tuple[tuple[int, ...], ...]) -> Floats:
    """How much more each rank uses than its peers; `classes` as in peers.py, nan for a rank without peers.

    imbalance(r) = peak(r) / median of the lower half of its peers - 1
    """
    return excess_over_peers(peaks[:, None], classes).relative[:, 0]


def memory_curve(run: Source, rank: int, *, most: int = MOST_POINTS) -> Table:
    """A rank's memory in bytes by time (s since its first sample) or by node of the graph, at most `most` points a series.

    Points that fall on the same place keep their maximum, so that a peak is never lost.
    """
    return query(
        run,
        f"""
        WITH
        points AS (
            SELECT coalesce(name, '') AS name, kind, coalesce((time - min(time) OVER ()) / 1e9, position) AS x,
                   allocated, reserved, active
            FROM memory WHERE rank = {rank:d} AND kind IN ('sample', 'node') AND (time IS NOT NULL OR position IS NOT NULL)
        ),
        placed AS (
            SELECT *, floor(x / nullif(max(x) OVER (), 0) * {most:d}) AS pixel, if(kind = 'node', '', name) AS series
            FROM points
        )
        SELECT series, kind, min(x) AS x, max(allocated) AS allocated, max(reserved) AS reserved,
               max(active) AS active, arg_max(name, allocated) AS name
        FROM placed GROUP BY series, kind, pixel ORDER BY series, x
        """,
    )


def largest_allocations(run: Source, *, most: int = 20) -> Table:
    """Operators by the size they ask for, per rank: largest and summed size in bytes, allocations, longest life in ms."""
    return query(
        run,
        f"""
        SELECT rank, name, max(size) AS largest, sum(size)::DOUBLE AS total, count(*) AS count,
               max(lifetime) / 1e6 AS lifetime
        FROM memory WHERE kind = 'operator' AND size > 0 GROUP BY rank, name
        QUALIFY row_number() OVER (PARTITION BY rank ORDER BY largest DESC, name) <= {most:d}
        ORDER BY rank, largest DESC, name
        """,
    )
