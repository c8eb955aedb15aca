"""What every format reader is made of: parts found in a tree, sections that can be read on their own.

A reader looks at a Tree and yields Parts (usually one per rank and recording). A Part lists Sections: files that
are read together and the tables that come out of them. Nothing is read before a table is asked for, and a section
is read again only when one of its files changed.

Rules for readers
- `find` is cheap: names, and at most the head of small files.
- `Section.read` is a module-level function (or functools.partial of one), so that it can run in another process.
- Rows go to `Sink.add` (Python or NumPy columns) or `Sink.add_query` (a DuckDB SELECT). Columns left out are null;
  `rank` is filled in from the part, unless the reader gives it; a query
  gives it only where the part's rank is None.
- A section that cannot be read raises; its rows are dropped, the error becomes a warning with file and rank, and
  all other sections are still read. A section that is readable but odd calls `Sink.warn`.
- Timestamps are the rank's own; links may carry communicator-local ranks with `scope = 'group'`. The Run
  translates both (run/clock.py, run/groups.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.storage.tree import File, Tree

if TYPE_CHECKING:
    import duckdb

Values = Sequence[Any] | NDArray[np.generic]


class Sink(Protocol):
    """Where a section's rows go."""

    connection: duckdb.DuckDBPyConnection
    """An in-memory DuckDB for staging; temporary tables made here are the reader's to drop."""

    def wants(self, table: str) -> bool:
        """Whether rows of this table are asked for; adding unwanted rows is harmless but wasted work."""
        ...

    def add(self, table: str, columns: Mapping[str, Values | Any]) -> None:
        """Add rows by columns of equal length; None is null; a scalar (str, int, None) is repeated."""
        ...

    def add_query(self, table: str, select: str, parameters: Sequence[object] = ()) -> int:
        """Add the rows of a SELECT whose column names are the table's; it may read files itself. Returns how many."""
        ...

    def warn(self, message: str, *, file: Path | None = None, line: int | None = None) -> None:
        """Say what is odd; reading goes on."""
        ...


@dataclass(frozen=True)
class Section:
    """Files that are read together, and the tables that come out of them."""

    name: str
    tables: frozenset[str]
    files: tuple[File, ...]
    read: Callable[[Sink], None]
    parsed: float = 1.0
    """Share of the bytes that is parsed; far less than 1 where a large file is only searched."""


@dataclass(frozen=True)
class Notice:
    """What an earlier reading of these rows noticed, about which file of which rank."""

    rank: int | None
    file: str | None
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Part:
    """One recording of one rank (rank None: the rows carry their own ranks, or belong to no rank)."""

    format: str
    rank: int | None
    root: str
    """Relative directory (or file) this part lies in; what users see as its path."""
    sections: tuple[Section, ...]
    recorded: str = ""
    """Sortable time of recording; when two parts hold the same rank, the newest is used."""
    job: str = ""
    """Parts of one rank with the same non-empty job are cycles of one recording and are all used."""
    notes: tuple[str, ...] = ()
    """What the reader noticed while looking: becomes warnings."""
    notices: tuple[Notice, ...] = ()
    """What was noticed when the rows were first read: become warnings again."""
    one_clock: bool = False
    """All its ranks' times are on the cluster's clock already."""

    @property
    def tables(self) -> frozenset[str]:
        return frozenset().union(*(section.tables for section in self.sections))


class Reader(Protocol):
    """One on-disk format."""

    name: str

    def find(self, tree: Tree) -> Iterator[Part]:
        """Yield what this format recognises in the tree, by content."""
        ...
