"""Tables that Paceline itself exported as Parquet: opened as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from paceline.formats.reader import Notice, Part, Section, Sink
from paceline.storage.tree import File, Tree
from paceline.tables import TABLES

SCHEMA = "paceline.tables/1"
_LONGEST_MARKER = 64_000_000
"""Thousands of ranks have something to say each."""


class _Marker(msgspec.Struct):
    schema: str
    tables: dict[str, int] | None = None
    """Rows by table: what else lies beside them is of another export."""
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class PacelineParquet:
    name: str = "paceline"

    def find(self, tree: Tree) -> Iterator[Part]:
        for directory, files in tree.directories.items():
            marker = _marker(files["paceline.json"].path) if "paceline.json" in files else None
            if marker is not None:
                names = [name for name in TABLES if marker.tables is None or name in marker.tables]
                sections = tuple(_section(name, file) for name in names if (file := files.get(f"{name}.parquet")))
                yield Part(self.name, None, directory, sections, notices=marker.warnings, one_clock=True)


READER = PacelineParquet()


def _marker(path: Path) -> _Marker | None:
    try:
        found = msgspec.json.decode(path.read_bytes()[:_LONGEST_MARKER], type=_Marker)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.schema == SCHEMA else None


def _section(name: str, file: File) -> Section:
    return Section(name, frozenset({name}), (file,), partial(_read, name, file.path))


def _read(table: str, path: Path, sink: Sink) -> None:
    """Only columns of the vocabulary, so that exports of older and newer versions open too."""
    found = {row[0] for row in sink.connection.execute("SELECT name FROM parquet_schema(?)", [str(path)]).fetchall()}
    columns = ", ".join(f'"{name}"' for name in TABLES[table].column_names if name in found)
    sink.add_query(table, f"SELECT {columns} FROM read_parquet(?)", [str(path)])
