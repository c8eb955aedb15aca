"""Ranks without any recording: named by those that communicated with them, or a hole in the numbers of the others."""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from paceline.core.message import message, ranks_named
from paceline.run.evidence.gap import EvidenceGap

HOLES = 1 / 3
"""Numbers that are left out are a choice of ranks, unless they are fewer than this share of those that are there."""


def absent_ranks(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Nobody measured them: whatever is reported of the run is less sure."""
    named = [
        rank for (rank,) in connection.execute("SELECT rank FROM ranks WHERE format IS NULL ORDER BY 1").fetchall()
    ]
    if named:
        return [EvidenceGap("missing", (), message("took_part", ranks=ranks_named(named)))]
    present = [rank for (rank,) in connection.execute("SELECT DISTINCT rank FROM recordings").fetchall()]
    if lacking := holes(present):
        return [EvidenceGap("missing", (), message("holes", ranks=ranks_named(lacking)))]
    return []


def holes(ranks: Collection[int]) -> list[int]:
    """Few numbers that are missing between others.

    >>> holes([0, 1, 3]), holes([4, 5, 6]), holes([0, 8, 16])
    ([2], [], [])
    """
    if not ranks:
        return []
    lacking = sorted(set(range(min(ranks), max(ranks))) - set(ranks))
    return lacking if len(lacking) <= HOLES * len(ranks) else []
