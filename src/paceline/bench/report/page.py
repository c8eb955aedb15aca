"""A report before it is shown: headlines, sentences and tables, the same for every output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})
    """Columns that are words; numbers stand to the right."""


@dataclass(frozen=True)
class Section:
    title: str
    sentences: tuple[str, ...] = ()
    table: Table | None = None
    chart: str = ""
    """SVG, for pages that can show it."""


@dataclass(frozen=True)
class Page:
    title: str
    headline: str
    """The answer, in one line."""
    sections: tuple[Section, ...]
    language: str


def filled(table: Table) -> Table:
    """Without columns that say nothing in any row."""
    kept = [place for place in range(len(table.heads)) if any(row[place] != "–" for row in table.rows)]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    texts = frozenset(new for new, place in enumerate(kept) if place in table.texts)
    return Table(tuple(table.heads[place] for place in kept), rows, texts)


def number(value: float | None, unit: str = "") -> str:
    """With as many digits as it deserves; what is not known is a dash.

    >>> number(14151.1817), number(0.71386), number(None), number(97.0, "W")
    ('14,151', '0.7139', '–', '97.0 W')
    """
    if value is None:
        return "–"
    size = abs(value)
    if size < 5e-5:
        return f"0 {unit}".rstrip()
    text = (
        f"{value:,.0f}"
        if size >= 10_000
        else f"{value:,.1f}"
        if size >= 10
        else f"{value:,.4f}"
        if size < 1
        else f"{value:.3f}"
    )
    return f"{text} {unit}".rstrip()


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def joined(texts: Sequence[str], language: str) -> str:
    return ("，" if language == "zh" else ", ").join(texts)
