"""Pipeline stages that no recording declares: the order of pipeline groups, confirmed by who talks first.

A chain of pipeline groups orders their ranks by their indices. It is the pipeline if in the steps the ranks at one end of
the chain send before they receive (activations leave stage 0), and all others receive first. If that holds for the other end,
the order is reversed; if for neither, stages stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import duckdb

_GROUPS = """
    SELECT list(rank ORDER BY index, rank) FROM members JOIN kinds USING ("group")
    WHERE kinds.kind = 'pp' GROUP BY "group" ORDER BY "group"
"""
_FIRST = """
    SELECT rank, avg((first = 'send')::INTEGER) > 0.5 FROM (
        SELECT rank, step, arg_min(op, start) AS first FROM grouped.collectives
        WHERE op IN ('send', 'receive') AND start IS NOT NULL GROUP BY rank, step
    ) GROUP BY rank
"""


def structural_stages(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """Rank → stage; empty where nothing tells it."""
    groups = [ranks for (ranks,) in connection.execute(_GROUPS).fetchall()]
    return stages_of(groups, dict(connection.execute(_FIRST).fetchall())) if groups else {}


def stages_of(groups: Sequence[Sequence[int]], sends_first: Mapping[int, bool]) -> dict[int, int]:
    """
    >>> stages_of([(0, 2), (1, 3)], {0: True, 1: True, 2: False, 3: False})
    {0: 0, 1: 0, 2: 1, 3: 1}
    """
    chain = _chain([pair for ranks in groups for pair in pairwise(ranks)])
    last = max(chain.values(), default=0)
    for stages in (chain, {rank: last - stage for rank, stage in chain.items()}):
        if stages and all(sends_first.get(rank) == (stage == 0) for rank, stage in stages.items()):
            return dict(sorted(stages.items()))
    return {}


def _chain(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Length of the longest chain before each rank; empty if the pairs form a circle."""
    stages = dict.fromkeys((rank for pair in pairs for rank in pair), 0)
    for _ in range(len(stages)):
        longer = {b: stages[a] + 1 for a, b in pairs if stages[b] <= stages[a]}
        if not longer:
            return stages
        for rank, stage in longer.items():
            stages[rank] = max(stages[rank], stage)
    return {}
