"""Where the time of a step goes: per rank, step, stage and host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from paceline.analysis.table import Source, Table, query
from paceline.tables import INPUT_WAIT

PARTS = ("compute", "overlapped", "exposed", "waiting", "tail", "free", "data")
"""Add up to the step."""


def rank_breakdown(run: Source, chosen: str) -> Table:
    """Per rank the mean step in ms, split into parts that add up to it.

        step    = compute + overlapped + exposed + waiting + tail + free + data
        waiting = bubble + (exposed - bubble) · wait share of the rank's collectives

    The wait share is sum(wait) / sum(duration) as the device recorded it. Devices that record no wait (or 0 always) get
    it from the arrivals: the last to arrive - own arrival, at most the time inside the collective.

    Recordings that only know iteration interval, forward/backward and tail give data, compute and tail from these.
    Some count waiting for input as computing (MindInsight: computing = step - exposed): it is taken out again.
    `chosen` is an SQL condition on `step`.
    """
    return query(run, f"WITH {_split(chosen, 'rank')} SELECT rank, {_MILLISECONDS} FROM split ORDER BY rank")


def breakdown_by(run: Source, chosen: str, by: Literal["step", "stage", "host"]) -> Table:
    """The same parts by step number, pipeline stage or host: the mean over its ranks (and their steps)."""
    parts = ", ".join(f"avg({part}) AS {part}" for part in ("step", *PARTS))
    return query(
        run,
        f"""
        WITH {_split(chosen, "rank, step")},
        parts AS (SELECT rank, step AS number, {_MILLISECONDS} FROM split)
        SELECT {"number" if by == "step" else by}, count(DISTINCT rank) AS ranks, {parts}
        FROM parts LEFT JOIN (SELECT rank, stage, host FROM ranks) USING (rank) GROUP BY 1 ORDER BY 1
        """,
    )


def step_shares(run: Source, steps: Sequence[int]) -> dict[str, float]:
    """Which share of the steps of all ranks goes where: sum(part) / sum(step); {} where nothing is known."""
    chosen = f"(step IS NULL OR step IN ({', '.join(map(str, steps))}))" if steps else "true"
    return shares_of(rank_breakdown(run, chosen))


def shares_of(breakdown: Table) -> dict[str, float]:
    """The same from a `rank_breakdown` of these steps."""
    numbers = breakdown.numbers
    whole = float(np.nansum(numbers["step"]))
    return {part: float(np.nansum(numbers[part])) / whole for part in PARTS} if whole else {}


def step_times(run: Source, chosen: str) -> Table:
    """Per step over the ranks: step time and computing time in ms, and who computed longest."""
    return query(
        run,
        f"""
        SELECT step, min(duration) / 1e6 AS step_min, median(duration) / 1e6 AS step_median,
               max(duration) / 1e6 AS step_max, min(busy) / 1e6 AS compute_min, median(busy) / 1e6 AS compute_median,
               max(busy) / 1e6 AS compute_max, arg_max(rank, busy) AS slowest
        FROM (SELECT *, coalesce(computing, forward_backward) AS busy FROM steps)
        WHERE {chosen} AND step IS NOT NULL GROUP BY step ORDER BY step
        """,
    )


def _split(chosen: str, keys: str) -> str:
    """CTEs up to `split`: the parts in ns per rank (keys "rank") or per rank and step."""
    return f"""
        stays AS (
            SELECT rank, wait, duration, CASE
                WHEN "group" IS NOT NULL AND sequence IS NOT NULL AND op <> 'send'
                THEN least(duration, max(start) OVER (PARTITION BY "group", op, sequence) - start)
            END AS early
            FROM collectives WHERE {chosen} AND op <> 'receive'
        ),
        waits AS (
            SELECT rank, coalesce(nullif(sum(wait), 0), sum(early), 0) / nullif(sum(duration), 0) AS share
            FROM stays GROUP BY rank
        ),
        usual AS (
            SELECT {keys}, avg(duration) AS duration, avg(coalesce(computing, forward_backward, 0)) AS computing,
                   avg(coalesce(overlapped, 0)) AS overlapped, avg(coalesce(exposed, 0)) AS exposed,
                   avg(least(coalesce(bubble, 0), coalesce(exposed, 0))) AS bubble,
                   avg(coalesce({INPUT_WAIT}, 0)) AS data, avg(if(computing IS NULL, tail, 0)) AS rest
            FROM steps WHERE {chosen} GROUP BY {keys}
        ),
        split AS (
            SELECT *, greatest(computing - overlapped, 0) AS compute,
                   bubble + (exposed - bubble) * coalesce(share, 0) AS waiting,
                   coalesce(least(rest, duration - computing - exposed), 0) AS tail,
                   greatest(duration - computing - exposed - tail, 0) AS unused,
                   least(greatest(data - unused, 0), compute) AS counted_twice
            FROM usual LEFT JOIN waits USING (rank)
        )"""


_MILLISECONDS = """duration / 1e6 AS step, (compute - counted_twice) / 1e6 AS compute, overlapped / 1e6 AS overlapped,
               (exposed - waiting) / 1e6 AS exposed, waiting / 1e6 AS waiting, tail / 1e6 AS tail,
               (unused - least(data, unused)) / 1e6 AS free, (least(data, unused) + counted_twice) / 1e6 AS data"""
