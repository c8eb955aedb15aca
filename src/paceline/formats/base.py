"""The Reader protocol: a reader finds recordings in a tree; each recording has sections that are read on demand.

A reader gets a Tree and yields RankRecordings (mostly one per rank and recording). A recording lists
RecordingSections: files that are read together, and the tables they supply. Nothing is read before one of these tables
is asked for, and a section is read again only when one of its files has changed.

Rules for readers
- `find` is cheap: it looks at names, and at most at the head of small files.
- `RecordingSection.read` is a module-level function (or functools.partial of one), so that another process can run it.
- Rows go to `Sink.add` (Python or NumPy columns) or `Sink.add_query` (a DuckDB SELECT). Columns left out are null.
  `rank` is filled in from the recording unless the reader gives it; a query gives it only if the recording's rank is
  None.
- A section that cannot be read raises an exception: its rows are dropped, the error becomes a warning with file and
  rank, and all other sections are still read. For data that is readable but odd, call `Sink.warn`.
- Timestamps are on the rank's own clock; links may carry ranks numbered inside their communicator with
  `scope = 'group'`. The Run translates both (run/clock.py, run/communicators/groups.py).

How to add a reader: docs/add-a-reader.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, Union

from paceline.core.message import Message, Sentence, message
from paceline.storage.file_tree import File, Tree

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

# A training container imports this module through collect_data: NumPy must not come with it.
Values: TypeAlias = Union[Sequence[Any], "NDArray[np.generic]"]


class Sink(Protocol):
    """Receives the rows of a section."""

    connection: duckdb.DuckDBPyConnection
    """An in-memory DuckDB for staging; a reader drops the temporary tables it creates."""

    def wants(self, table: str) -> bool:
        """Whether rows of this table are asked for; other rows are ignored."""
        ...

    def add(self, table: str, columns: Mapping[str, Values | Any]) -> None:
        """Add rows as columns of equal length; None is null; a scalar (str, int, None) is repeated."""
        ...

    def add_query(self, table: str, select: str, parameters: Sequence[object] = ()) -> int:
        """Add the rows of a SELECT with the table's column names; it may read files itself. Returns the number of rows."""
        ...

    def warn(
        self, message: Sentence, *, file: Path | None = None, line: int | None = None, kind: GapKind = "odd"
    ) -> None:
        """Report something missing or odd; reading continues, and findings are less sure, by the kind of gap."""
        ...


@dataclass(frozen=True)
class RecordingSection:
    """Files that are read together, and the tables they supply."""

    name: str
    tables: frozenset[str]
    files: tuple[File, ...]
    read: Callable[[Sink], None]
    parsed: float = 1.0
    """Share of the bytes that is parsed; far below 1 if a large file is only searched."""


CUT_OFF = message("cut_everything")
"""What every reader says of a file that ends early."""

GapKind = Literal["identity", "conflict", "lost", "cut", "missing", "counts", "disagreement", "odd"]
"""What a gap in the evidence is; see run/evidence/gap.py."""


@dataclass(frozen=True)
class EarlierWarning:
    """A warning from when these rows were first read, kept with an export of the tables."""

    rank: int | None
    file: str | None
    message: str
    line: int | None = None
    kind: GapKind = "odd"
    core: bool = True
    said: Message | None = None
    """The message as it was made, for any language; None: somebody else's reader said it."""


@dataclass(frozen=True)
class EarlierGap:
    """A gap that the files showed when these rows were first read: they are not there any more."""

    kind: GapKind
    ranks: tuple[int, ...]
    message: str
    file: str | None = None
    core: bool = True
    said: Message | None = None


@dataclass(frozen=True)
class RankRecording:
    """One recording of one rank; rank None: the rows carry their ranks, or belong to no rank."""

    format: str
    rank: int | None
    root: str
    """Relative directory (or file) of the recording; users see it as its path."""
    sections: tuple[RecordingSection, ...]
    recorded: str = ""
    """Sortable time of the recording; of two recordings of a rank the newest is used."""
    job: str = ""
    """Recordings of one rank with the same non-empty job are cycles of one recording; all are used."""
    notes: tuple[Sentence, ...] = ()
    """What the reader noticed in `find`; becomes warnings."""
    earlier_warnings: tuple[EarlierWarning, ...] = ()
    earlier_gaps: tuple[EarlierGap, ...] = ()
    """Warnings from when the rows were first read; become warnings again."""
    conflicts: tuple[Sentence, ...] = ()
    """What says that it is of another rank: its name, its directory, files beside it."""
    contents: frozenset[str] = frozenset()
    """What its main file holds that findings are built on (tables of a database), to be compared with its peers."""
    rank_assumed: bool = False
    """Whether the rank is a guess: no name and no file records it."""
    one_clock: bool = False
    """Whether the times of all its ranks are already on one clock."""
    ring: bool = False
    """Whether its writer adds and removes files while it runs: which there are, and how long, tells nothing."""

    @property
    def tables(self) -> frozenset[str]:
        return frozenset().union(*(section.tables for section in self.sections))


class Reader(Protocol):
    """Finds the recordings of one format."""

    name: str

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        """Yield the recordings in the tree that are of this format, judged by content."""
        ...
