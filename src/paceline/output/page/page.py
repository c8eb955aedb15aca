"""A report page before it is written: a headline, and sections with sentences, a table and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from paceline.core.i18n import Language
from paceline.output.page.charts import PageChart


@dataclass(frozen=True)
class PageTable:
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})
    """Columns of words; columns of numbers are aligned to the right."""


@dataclass(frozen=True)
class PageLink:
    """Another file, and what it is called."""

    name: str
    target: str
    """Relative to the directory that the page belongs to."""


@dataclass(frozen=True)
class PageSection:
    title: str
    sentences: tuple[str, ...] = ()
    table: PageTable | None = None
    chart: PageChart | None = None
    """For outputs that can draw it."""
    links: tuple[PageLink, ...] = ()
    detail: bool = False
    """Left out where there is little space: the answer does not need it."""


@dataclass(frozen=True)
class ReportPage:
    title: str
    headline: str
    """The answer, in one line."""
    sections: tuple[PageSection, ...]
    language: Language


def link_address(link: PageLink, base: str) -> str:
    """The address to write into a file; `base` leads from it to the page's directory.

    >>> link_address(PageLink("report", "profile 2.html"), "../run")
    '../run/profile%202.html'
    """
    return quote(f"{base}/{link.target}" if base and base != "." else link.target)


def without_empty_columns(table: PageTable) -> PageTable:
    """The table without the columns that are unknown in every row."""
    kept = [place for place in range(len(table.heads)) if any(row[place] != "–" for row in table.rows)]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    texts = frozenset(new for new, place in enumerate(kept) if place in table.texts)
    return PageTable(tuple(table.heads[place] for place in kept), rows, texts)


def format_number(value: float | None, unit: str = "") -> str:
    """With as many digits as it deserves; unknown is a dash.

    >>> format_number(14151.1817), format_number(0.71386), format_number(None), format_number(97.0, "W")
    ('14,151', '0.7139', '–', '97.0 W')
    """
    if value is None:
        return "–"
    size = abs(value)
    if size < 5e-5:
        return f"0 {unit}".rstrip()
    digits = 0 if size >= 10_000 else 1 if size >= 10 else 3 if size >= 1 else 4
    return f"{value:,.{digits}f} {unit}".rstrip()


def format_percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def join_sentences(texts: Sequence[str], language: Language) -> str:
    return ("，" if language == "zh" else ", ").join(texts)
