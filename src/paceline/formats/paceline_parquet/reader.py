"""Reader of tables that `paceline export --to parquet` wrote: used as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.core.schema import TABLES
from paceline.formats.base import EarlierGap, EarlierWarning, RankRecording, RecordingSection, Sink
from paceline.formats.paceline_parquet import FORMAT
from paceline.storage.file_tree import File, Tree

SCHEMA = "paceline.tables/1"
_ROWS_PER_BYTE, _MOST_ROWS_OF_A_SMALL_FILE = 50, 1_000_000
"""Start and duration of an execution take bytes; ten kilobytes can claim a hundred million equal rows."""
_LONGEST_MARKER = 64_000_000
"""Bytes; the marker holds the warnings of thousands of ranks."""


class _Marker(msgspec.Struct):
    schema: str
    tables: dict[str, int] | None = None
    """Table → number of rows; other Parquet files in the directory belong to another export."""
    warnings: tuple[EarlierWarning, ...] = ()
    gaps: tuple[EarlierGap, ...] = ()


@dataclass(frozen=True)
class PacelineParquetReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        for directory, files in tree.directories.items():
            marker = _marker(files["paceline.json"].path) if "paceline.json" in files else None
            if marker is not None:
                names = [name for name in TABLES if marker.tables is None or name in marker.tables]
                sections = tuple(_section(name, file) for name in names if (file := files.get(f"{name}.parquet")))
                yield RankRecording(
                    self.name,
                    None,
                    directory,
                    sections,
                    earlier_warnings=marker.warnings,
                    earlier_gaps=marker.gaps,
                    one_clock=True,
                )


READER = PacelineParquetReader()


def _marker(path: Path) -> _Marker | None:
    try:
        found = msgspec.json.decode(path.read_bytes()[:_LONGEST_MARKER], type=_Marker)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.schema == SCHEMA else None


def _section(name: str, file: File) -> RecordingSection:
    return RecordingSection(name, frozenset({name}), (file,), partial(_read, name, file.path))


def _read(table: str, path: Path, sink: Sink) -> None:
    """Only columns that the schema has, so that exports of older and newer versions can be read."""
    _check_rows(path, sink)
    found = {row[0] for row in sink.connection.execute("SELECT name FROM parquet_schema(?)", [str(path)]).fetchall()}
    columns = ", ".join(f'"{name}"' for name in TABLES[table].column_names if name in found)
    sink.add_query(table, f"SELECT {columns} FROM read_parquet(?)", [str(path)])


def _check_rows(path: Path, sink: Sink) -> None:
    [(rows,)] = sink.connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [str(path)]).fetchall()
    size = path.stat().st_size
    if rows > max(_MOST_ROWS_OF_A_SMALL_FILE, _ROWS_PER_BYTE * size):
        raise FormatError(message("claims", rows=rows, size=size), file=path)
