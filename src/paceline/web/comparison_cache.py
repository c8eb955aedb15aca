"""Cache of comparisons of two runs: computed once, then paged, sorted and filtered like any table."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import duckdb
import numpy as np

from paceline.core.i18n import Language
from paceline.diagnosis.finding_diff import FindingChange, compare_findings, unrecorded_kinds
from paceline.metrics.compare import Change, Comparison, compare
from paceline.web.paging import Column, ColumnKind, PagedTable
from paceline.web.run_cache import CachedRun

MOST_KEPT = 4
"""Comparisons kept; the least recently used is dropped."""


def _table(name: str, about: str, who: tuple[Column, ...], select: str, kind: ColumnKind) -> PagedTable:
    columns = (
        *who,
        Column("before", kind),
        Column("after", kind),
        Column("change", "fraction"),
        Column("noise", "fraction"),
        Column("verdict"),
        Column("place", "count"),
    )
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
        _table("phases", "Step time and its parts per step, mean over ranks.", _NAME, "name", "ms"),
        _table("ranks", "Self time of each rank, per step.", (Column("rank", "rank"),), "name::BIGINT AS rank", "ms"),
        _table("operators", "Time per step by operator type, mean over ranks.", _NAME, "name", "ms"),
        _table("transports", "Bandwidth by transport.", _NAME, "name", "rate"),
        _table(
            "links",
            "Bandwidth of each link.",
            (Column("src", "rank"), Column("dst", "rank"), Column("transport")),
            "regexp_extract(name, '^[0-9]+')::BIGINT AS src, regexp_extract(name, '→ ([0-9]+)', 1)::BIGINT AS dst, "
            "regexp_extract(name, '→ [0-9]+ (.*)$', 1) AS transport",
            "rate",
        ),
    )
}
"""Tables of a comparison; `place` orders by the size of the change, changes beyond noise first."""


@dataclass(frozen=True)
class CachedComparison:
    """The comparison of two runs and its tables, in a database of its own."""

    before: CachedRun
    after: CachedRun
    result: Comparison
    unrecorded: frozenset[str]
    """Kinds of subjects the later run has no rows for."""
    connection: duckdb.DuckDBPyConnection

    def findings(self, language: Language) -> tuple[FindingChange, ...]:
        before, after = self.before.diagnoses[language], self.after.diagnoses[language]
        return compare_findings(before, after, unrecorded=self.unrecorded)

    def rows(self, part: str) -> tuple[Change, ...]:
        return _rows(self.result, part)


@dataclass
class ComparisonCache:
    """The latest comparisons; a run that was read again counts as another run."""

    _kept: dict[tuple[CachedRun, CachedRun], CachedComparison] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, before: CachedRun, after: CachedRun) -> CachedComparison:
        """The comparison of two runs that are ready."""
        with self._lock:
            known = self._kept.pop((before, after), None) or _compare(before, after)
            self._kept[before, after] = known
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
        return known


def _compare(before: CachedRun, after: CachedRun) -> CachedComparison:
    result = compare(before.exclusive(lambda: before.measured), after.exclusive(lambda: after.measured))
    unrecorded = after.exclusive(lambda: unrecorded_kinds(after.context.run))
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE changes (part VARCHAR, place BIGINT, name VARCHAR, before DOUBLE, after DOUBLE, change DOUBLE, "
        "noise DOUBLE, verdict VARCHAR)"
    )
    for part in COMPARISONS:
        _store(connection, part, _rows(result, part))
    return CachedComparison(before, after, result, unrecorded, connection)


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
