"""Chrome-trace JSON into DuckDB: bare lists or {"traceEvents": […]}, plain or gzip, numbers or strings for times.

DuckDB reads JSON arrays at 200 MB per CPU second but objects thirty times slower, so the array inside an object is
copied out first. Nothing here builds a Python object per event.
"""

from __future__ import annotations

import gzip
import mmap
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

from paceline.errors import FormatError

MAX_UNPACKED = 64 << 30
"""A gzip file that unpacks to more than this is refused: no recording of one rank is that large."""
MAX_RATIO = 500
"""Real traces pack 10 to 60 times; a bomb packs a thousand times."""

_BLOCK = 8 << 20
_ARRAY_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')


def load_trace(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    table: str = "trace",
    args: Mapping[str, str] | None = None,
) -> None:
    """Create a temporary table of a trace file's events.

    Columns: ph, name, pid, tid, cat, id (text), ts and dur (int64 ns; null when absent or not a number), and one
    text column per entry of `args` (column name → key inside the event's "args" object).
    """
    args = dict(args or {})
    fields = ", ".join(f'"{key}" VARCHAR' for key in sorted(set(args.values()))) or '"_" VARCHAR'
    picked = "".join(f', args."{key}" AS "{column}"' for column, key in args.items())
    with _as_array(path) as array:
        connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE "{table}" AS
            SELECT ph, name, pid, tid, cat, id,
                   (TRY_CAST(ts AS DECIMAL(30, 3)) * 1000)::BIGINT AS ts,
                   (TRY_CAST(dur AS DECIMAL(30, 3)) * 1000)::BIGINT AS dur{picked}
            FROM read_json(?, format = 'array', maximum_object_size = 67108864, columns = {{
                ph: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR', cat: 'VARCHAR', id: 'VARCHAR',
                ts: 'VARCHAR', dur: 'VARCHAR', args: 'STRUCT({fields})'}})
            """,
            [str(array)],
        )


@contextmanager
def _as_array(path: Path) -> Iterator[Path]:
    """A file that holds just the JSON array of events: the file itself, or a temporary copy of its array."""
    if path.stat().st_size == 0:
        raise FormatError("is empty", file=path)
    packed = _is_gzip(path)
    if not packed and _starts_with_bracket(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        plain = unpack(path, Path(scratch) / "unpacked.json") if packed else path
        if _starts_with_bracket(plain):
            yield plain
        else:
            yield _copy_array(plain, Path(scratch) / "array.json", named=path)


def unpack(path: Path, target: Path) -> Path:
    """Decompress a gzip file with a bound on what it may become."""
    limit = min(MAX_UNPACKED, max(path.stat().st_size * MAX_RATIO, 64 << 20))
    written = 0
    try:
        with gzip.open(path, "rb") as source, target.open("wb") as out:
            while block := source.read(_BLOCK):
                written += len(block)
                if written > limit:
                    raise FormatError(f"unpacks to more than {limit >> 20:,} MiB; refused", file=path)
                out.write(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"damaged or cut-off gzip data ({error})", file=path) from error
    return target


def read_head(path: Path, size: int = 65536) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; b"" when it is damaged."""
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else path.open("rb") as source:
            return source.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _starts_with_bracket(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def _copy_array(path: Path, target: Path, *, named: Path) -> Path:
    """Copy the "traceEvents" array out of an object; what follows its end is left behind."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _ARRAY_KEY.search(data)
        if not found:
            raise FormatError('has no "traceEvents" array', file=named)
        start = found.end() - 1
        end = _end_of_array(data, start)
        if end is None:
            raise FormatError("is cut off: the list of events does not end", file=named)
        with target.open("wb") as out:
            for offset in range(start, end, _BLOCK):
                out.write(data[offset : min(offset + _BLOCK, end)])
    return target


def _end_of_array(data: mmap.mmap, start: int) -> int | None:
    """Offset behind the "]" that closes the array of events.

    Most writers put the array last, or a few short keys behind it: try each "]" from the end of the file and accept
    the first that leaves a well-formed rest of an object.
    """
    import json

    position = len(data)
    for _ in range(64):
        position = data.rfind(b"]", start, position)
        if position < 0:
            return None
        rest = data[position + 1 : position + 1 + (4 << 20)].strip()
        if rest == b"}" or rest.startswith(b","):
            try:
                json.loads(b'{"a":0' + rest)
            except ValueError:
                continue
            if len(data) - position > (4 << 20):
                return None
            return position + 1
    return None
