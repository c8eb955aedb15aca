"""Reader of op-level traces of the OSDI'25 straggler study (ByteDance): one Parquet file for all workers of a job.

A row is an operation of a worker (data-parallel rank × pipeline stage) in a step; `start_ts` are seconds since the start
of that step on any worker, as 32-bit floats (0.1 µs). When steps began is not recorded: here each begins when the step
before it ended. The file `meta-<name>.yaml` beside `trace-<name>.parquet` holds the parallel sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from paceline.core.message import Sentence, message
from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.osdi import FORMAT
from paceline.formats.osdi.tables import OsdiTrace, read_operations
from paceline.storage.file_tree import File, Tree

_COLUMNS = (b"dp_rank", b"stage", b"step", b"optype", b"start_ts", b"duration", b"seq_id")
_MAX_FOOTER = 16 << 20
_SETTING = re.compile(r"^(\w+):[ \t]*(-?\d+)[ \t]*$", re.MULTILINE)

_TABLES = frozenset({"ranks", "groups", "steps", "kernels", "collectives", "events"})


@dataclass(frozen=True)
class OsdiReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        for file in tree.files:
            if file.name.endswith(".parquet") and _has_columns(file):
                meta = tree.directories[file.directory].get(_meta_name(file.name))
                yield _recording(self.name, file, meta)


READER = OsdiReader()


def _recording(name: str, file: File, meta: File | None) -> RankRecording:
    sizes = _sizes(meta) if meta else {}
    source = OsdiTrace(file.path, file.relative, name, sizes.get("pp_size"), sizes.get("dp_size"))
    notes: tuple[Sentence, ...] = ()
    if (tp := sizes.get("tp_size", 1)) > 1:
        notes = (message("represents", n=tp),)
    files = (file, meta) if meta else (file,)
    section = RecordingSection("operations", _TABLES, files, partial(read_operations, source))
    return RankRecording(name, None, file.relative, (section,), recorded=f"{file.mtime_ns:020d}", notes=notes)


def _meta_name(name: str) -> str:
    """
    >>> _meta_name("trace-ST.parquet")
    'meta-ST.yaml'
    """
    return name.removeprefix("trace").join(("meta", "")).removesuffix(".parquet") + ".yaml"


def _sizes(meta: File) -> dict[str, int]:
    """The integers of a flat YAML file."""
    with meta.path.open(encoding="utf-8", errors="replace") as text:
        return {key: int(value) for key, value in _SETTING.findall(text.read(65536))}


def _has_columns(file: File) -> bool:
    """A Parquet file ends with its schema, the schema's length in four bytes, and "PAR1"."""
    try:
        with file.path.open("rb") as data:
            data.seek(-8, 2)
            tail = data.read(8)
            length = int.from_bytes(tail[:4], "little")
            if tail[4:] != b"PAR1" or not 0 < length <= min(_MAX_FOOTER, file.size - 8):
                return False
            data.seek(-8 - length, 2)
            schema = data.read(length)
    except OSError:
        # Too short to be Parquet, or unreadable: not a trace of this format.
        return False
    return all(column in schema for column in _COLUMNS)
