"""Two runs side by side, kept so that their tables can be paged: worked out once, asked many times."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import duckdb
import numpy as np

from paceline.advice.fate import Fate, blind_spots, fates
from paceline.analysis.compare import Change, Comparison, compare
from paceline.web.opened import OpenRun
from paceline.web.paging import Column, PagedTable

MOST_KEPT = 4
"""Pairs of runs whose comparison is kept; the one nobody asked for longest is dropped."""


def _table(name: str, about: str, who: tuple[Column, ...], select: str, kind: str) -> PagedTable:
    columns = (
        *who, Column("before", kind), Column("after", kind), Column("change", "fraction"), Column("noise", "fraction"),
        Column("verdict"), Column("place", "count"),
    )  # fmt: skip
    query = f"""
        SELECT {select}, before, after, change, noise, verdict, place FROM changes
        WHERE part = '{name}' AND ($q IS NULL OR contains(lower(name), lower($q)))
          AND ($verdict IS NULL OR verdict = $verdict OR ($verdict = 'changed' AND verdict <> 'same'))
    """
    return PagedTable(name, about, columns, lambda filters: query, ("q", "verdict"), "place")


_NAME = (Column("name"),)
COMPARISONS: dict[str, PagedTable] = {
    table.name: table
    for table in (
        _table("phases", "The step and its phases, mean over ranks.", _NAME, "name", "ms"),
        _table("ranks", "Own time of each rank.", (Column("rank", "rank"),), "name::BIGINT AS rank", "ms"),
        _table("operators", "Time a step by operator type, mean over ranks.", _NAME, "name", "ms"),
        _table("transports", "Bandwidth by transport.", _NAME, "name", "rate"),
        _table(
            "links", "Bandwidth of each link.", (Column("src", "rank"), Column("dst", "rank"), Column("transport")),
            "regexp_extract(name, '^[0-9]+')::BIGINT AS src, regexp_extract(name, '→ ([0-9]+)', 1)::BIGINT AS dst, "
            "regexp_extract(name, '→ [0-9]+ (.*)$', 1) AS transport",
            "rate",
        ),
    )
}  # fmt: skip
"""Tables of a comparison; `place` is by the size of the change, what really changed first."""


@dataclass(frozen=True)
class ComparedRuns:
    """The comparison of two open runs and its tables, in a database of their own."""

    before: OpenRun
    after: OpenRun
    result: Comparison
    fates: tuple[Fate, ...]
    connection: duckdb.DuckDBPyConnection

    def rows(self, part: str) -> tuple[Change, ...]:
        return _rows(self.result, part)


@dataclass
class Comparisons:
    """The latest comparisons; a run that was read again is another run."""

    _kept: dict[tuple[OpenRun, OpenRun], ComparedRuns] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, before: OpenRun, after: OpenRun) -> ComparedRuns:
        """Both must be examined."""
        with self._lock:
            known = self._kept.pop((before, after), None) or _compared(before, after)
            self._kept[before, after] = known
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
        return known


def _compared(before: OpenRun, after: OpenRun) -> ComparedRuns:
    assert before.diagnosis is not None and after.diagnosis is not None
    result = compare(before.exclusive(lambda: before.measured), after.exclusive(lambda: after.measured))
    blind = after.exclusive(lambda: blind_spots(after.case.run))
    told = tuple(fates(before.diagnosis, after.diagnosis, blind=blind))
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE changes (part VARCHAR, place BIGINT, name VARCHAR, before DOUBLE, after DOUBLE, change DOUBLE, "
        "noise DOUBLE, verdict VARCHAR)"
    )
    for part in COMPARISONS:
        _store(connection, part, _rows(result, part))
    return ComparedRuns(before, after, result, told, connection)


def _rows(result: Comparison, part: str) -> tuple[Change, ...]:
    if part == "phases":
        return (result.step, *result.phases)
    rows: tuple[Change, ...] = getattr(result, part)
    return rows


def _store(connection: duckdb.DuckDBPyConnection, part: str, rows: tuple[Change, ...]) -> None:
    if not rows:
        return
    staged = {
        "place": np.arange(1, len(rows) + 1),
        "name": np.array([row.name for row in rows], dtype=object),
        "verdict": np.array([row.verdict for row in rows], dtype=object),
        **{name: np.array([getattr(row, name) for row in rows]) for name in ("before", "after", "noise")},
    }
    connection.register("staged", staged)
    connection.execute(
        f"""
        INSERT INTO changes BY NAME
        SELECT '{part}' AS part, place, name, before, after, after / nullif(before, 0) - 1 AS change,
               noise / nullif(abs(before), 0) AS noise, verdict FROM staged
        """
    )
    connection.unregister("staged")
