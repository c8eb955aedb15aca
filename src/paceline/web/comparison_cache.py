"""Cache of comparisons of two runs: computed once, then paged, sorted and filtered like any table."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from paceline.core.i18n import Language
from paceline.diagnosis.finding_diff import FindingChange, compare_findings, unrecorded_kinds
from paceline.metrics.compare import Change, Comparison, LinkKey, compare
from paceline.web.paging import Column, ColumnKind, PagedTable
from paceline.web.run_cache import CachedRun

MOST_KEPT = 4
"""Comparisons kept; the least recently used is dropped."""


def _table(name: str, about: str, who: tuple[Column, ...], kind: ColumnKind) -> PagedTable:
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
        SELECT * FROM changes_of_{name}
        WHERE ($q IS NULL OR contains(lower(name), lower($q)))
          AND ($verdict IS NULL OR verdict = $verdict OR ($verdict = 'changed' AND verdict <> 'same'))
    """
    return PagedTable(name, about, columns, lambda filters: query, ("q", "verdict"), "place")


_NAME = (Column("name"),)
_LINK = (Column("src", "rank"), Column("dst", "rank"), Column("transport"))
COMPARISONS: dict[str, PagedTable] = {
    table.name: table
    for table in (
        _table("phases", "Step time and its parts per step, mean over ranks.", _NAME, "ms"),
        _table("ranks", "Self time of each rank, per step.", (Column("rank", "rank"),), "ms"),
        _table("operators", "Time per step by operator type, mean over ranks.", _NAME, "ms"),
        _table("transports", "Bandwidth by transport.", _NAME, "rate"),
        _table("links", "Bandwidth of each link.", _LINK, "rate"),
    )
}
"""Tables of a comparison; `place` orders by the size of the change, changes beyond noise first."""


_STORED = """
    place BIGINT, name VARCHAR, rank BIGINT, src BIGINT, dst BIGINT, transport VARCHAR,
    before DOUBLE, after DOUBLE, change DOUBLE, noise DOUBLE, verdict VARCHAR
"""


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
    for part in COMPARISONS:
        _store(connection, part, _rows(result, part))
    return CachedComparison(before, after, result, unrecorded, connection)


def _rows(result: Comparison, part: str) -> tuple[Change, ...]:
    if part == "phases":
        return (result.step, *result.phases)
    rows: tuple[Change, ...] = getattr(result, part)
    return rows


def _store(connection: duckdb.DuckDBPyConnection, part: str, rows: tuple[Change, ...]) -> None:
    """The table `changes_of_{part}`: numbers of metrics/compare.py, percents as fractions."""
    numbers = {
        "before": [row.before for row in rows],
        "after": [row.after for row in rows],
        "change": [_fraction(row.percent) for row in rows],
        "noise": [_fraction(row.noise_percent) for row in rows],
    }
    staged = {
        "place": np.arange(1, len(rows) + 1),
        "name": _texts(row.name for row in rows),
        "verdict": _texts(row.verdict for row in rows),
        **_keys(rows),
        **{name: np.array(values, dtype=np.float64) for name, values in numbers.items()},
    }
    shown = ", ".join(f'if(isnan("{name}"), NULL, "{name}") AS "{name}"' for name in numbers)
    connection.execute(f"CREATE TABLE changes_of_{part} ({_STORED})")
    if rows:
        connection.register("staged", staged)
        connection.execute(f"INSERT INTO changes_of_{part} BY NAME SELECT * REPLACE ({shown}) FROM staged")
        connection.unregister("staged")


def _fraction(percent: float | None) -> float:
    return np.nan if percent is None else percent / 100


def _keys(rows: tuple[Change, ...]) -> dict[str, NDArray[Any]]:
    """The rank, or src, dst and transport of the link, that a row is about."""
    links = [row.key for row in rows if isinstance(row.key, LinkKey)]
    return {
        "rank": np.array([row.key if isinstance(row.key, int) else -1 for row in rows], dtype=np.int64),
        "src": np.array([link.src for link in links] or [-1] * len(rows), dtype=np.int64),
        "dst": np.array([link.dst for link in links] or [-1] * len(rows), dtype=np.int64),
        "transport": _texts([link.transport for link in links] or [""] * len(rows)),
    }


def _texts(texts: Iterable[str]) -> NDArray[Any]:
    return np.array([*texts, None], dtype=object)[:-1]
