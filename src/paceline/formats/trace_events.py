"""Chrome-trace JSON into DuckDB: bare lists or {"traceEvents": […]}, plain or gzip, numbers or strings for times.

DuckDB reads JSON arrays at 200 MB per CPU second but objects thirty times slower, so the array inside an object is
copied out first. Nothing here builds a Python object per event.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from paceline.errors import FormatError

if TYPE_CHECKING:
    import duckdb

MAX_UNPACKED = 64 << 30
"""A gzip file that unpacks to more than this is refused: no recording of one rank is that large."""
MAX_RATIO = 500
"""Real traces pack 10 to 60 times; a bomb packs a thousand times."""

_BLOCK = 8 << 20
_PIECE = 2 << 20
_BLANK = b"\xef\xbb\xbf \t\r\n"
_PACKED = 64 << 10
"""Bytes unpacked at once: at most a thousand times as many come out."""
_MAX_EVENT = 16 << 20
"""No event is larger."""
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*(.)')
_MAX_TAIL = 16 << 20
"""What follows the events is metadata: kilobytes."""
_MAX_HEAD = 16 << 20
_MAX_LISTS_IN_EVENT = 10_000
_ARRAY_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')


def load_trace(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    table: str = "trace",
    args: Mapping[str, str] | None = None,
    phases: str | None = None,
) -> None:
    """Create a temporary table of a trace file's events, or only of those phases ("XM" = spans and metadata).

    Columns: ph, name, pid, tid, cat, id (text), ts and dur (int64 ns; null when absent or not a number), and one
    text column per entry of `args` (column name → key inside the event's "args" object).

    Times written as JSON numbers pass through a double: microseconds since 1970 are exact to 0.25 µs, times relative
    to a base (newer torch) and times in strings (Ascend) to the nanosecond.
    """
    with trace_query(path, args=args, phases=phases) as (select, array):
        connection.execute(f'CREATE OR REPLACE TEMP TABLE "{table}" AS {select}', [array])


@contextmanager
def trace_query(
    path: Path, *, args: Mapping[str, str] | None = None, phases: str | None = None
) -> Iterator[tuple[str, str]]:
    """The SELECT behind `load_trace` and its one parameter, for rows that need not be kept."""
    with _as_array(path) as array:
        yield _select(args or {}, _NUMBERS if _times_are_numbers(array) else _TEXT, phases, _largest(array)), str(array)


def load_counters(connection: duckdb.DuckDBPyConnection, path: Path, *, table: str = "counters") -> None:
    """Create a temporary table of a trace's counter samples (ph "C"): name, series, ts (int64 ns) and value.

    Their "args" have a key per series, which nobody knows beforehand: a second reading, for files that have any.
    """
    with _as_array(path) as array:
        times = _NUMBERS if _times_are_numbers(array) else _TEXT
        connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE "{table}" AS
            WITH events AS (
                FROM read_json(?, format = 'array', ignore_errors = true, maximum_object_size = {_largest(array)},
                    columns = {{
                        ph: 'VARCHAR', name: 'VARCHAR', ts: '{times.type}', args: 'MAP(VARCHAR, DOUBLE)'}})
            ), samples AS (
                SELECT name, {times.to_ns.format("ts")} AS ts, unnest(map_entries(args)) AS sample
                FROM events
                WHERE ph = 'C'
            )
            SELECT name, sample.key AS series, ts, sample.value AS value FROM samples WHERE sample.value IS NOT NULL
            """,
            [str(array)],
        )


@dataclass(frozen=True)
class _Times:
    """How DuckDB reads "ts" and "dur", and what makes int64 nanoseconds of them."""

    type: str
    to_ns: str


_LENGTH = "TRY_CAST(round(dur * 1000) AS BIGINT)"
"""Durations fit a double to the nanosecond."""
_NUMBERS = _Times("DOUBLE", "TRY_CAST(trunc({0}) AS BIGINT) * 1000 + TRY_CAST(round({0} % 1 * 1000) AS BIGINT)")
"""Twice as fast as text. Multiplied as a whole, microseconds since 1970 would lose another 128 ns."""
_TEXT = _Times(
    "VARCHAR",
    "if({0}[-4] = '.', TRY_CAST(replace({0}, '.', '') AS BIGINT),"
    " TRY_CAST(TRY_CAST({0} AS DECIMAL(30, 3)) * 1000 AS BIGINT))",
)
"""Exact to the nanosecond where the file has strings, as Ascend's do; these have three decimals, mostly."""


def _largest(array: Path) -> int:
    """How large an event may be. DuckDB allocates twice this per thread, and touches it all, before it reads the first."""
    return min(_MAX_EVENT, max(array.stat().st_size, 1 << 20))


def _select(args: Mapping[str, str], times: _Times, phases: str | None, largest: int) -> str:
    fields = ", ".join(f'"{key}" VARCHAR' for key in sorted(set(args.values())))
    struct = f", args: 'STRUCT({fields})'" if fields else ""
    chosen = f"WHERE ph IN ({', '.join(repr(phase) for phase in phases)})" if phases else ""
    if phases == "X":
        # A span without a time is none. Asked of the text: asking the number would work it out twice.
        chosen += " AND event.ts IS NOT NULL"
    # ignore_errors turns a value of the wrong type into a null; broken JSON still raises.
    picked = "".join(f', args."{key}" AS "{column}"' for column, key in args.items())
    return f"""
        SELECT ph, name, pid, tid, cat, id, {times.to_ns.format("ts")} AS ts, {_LENGTH} AS dur{picked}
        FROM read_json(?, format = 'array', ignore_errors = true, maximum_object_size = {largest}, columns = {{
            ph: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR', cat: 'VARCHAR', id: 'VARCHAR',
            ts: '{times.type}', dur: 'DOUBLE'{struct}}}) AS event
        {chosen}
    """


def _times_are_numbers(array: Path) -> bool:
    with array.open("rb") as file:
        found = _FIRST_TIME.search(file.read(1 << 20))
    return found is not None and found[1] != b'"'


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
    with target.open("wb") as out:
        for block in unpacked(path):
            out.write(block)
    return target


def unpacked(path: Path) -> Iterator[bytes]:
    """A gzip file block by block, with a bound on what it may become."""
    limit = min(MAX_UNPACKED, max(path.stat().st_size * MAX_RATIO, 64 << 20))
    given = 0
    try:
        for block in _members(path):
            given += len(block)
            if given > limit:
                raise FormatError(f"unpacks to more than {limit >> 20:,} MiB; refused", file=path)
            yield block
    except (EOFError, zlib.error) as error:
        raise FormatError(f"damaged or cut-off gzip data ({error})", file=path) from error


def _members(path: Path) -> Iterator[bytes]:
    """The gzip module gives 8 kB at a time, and spends as long on that as zlib on unpacking them."""
    with path.open("rb") as source:
        member, begun = zlib.decompressobj(wbits=31), False
        packed = source.read(_PACKED)
        while packed:
            yield member.decompress(packed)
            packed, begun = b"", True
            if member.eof:
                # Another member may follow, or padding.
                packed, begun = member.unused_data.lstrip(b"\0"), False
                member = zlib.decompressobj(wbits=31)
            packed = packed or source.read(_PACKED)
        if begun:
            raise EOFError("it ends in the middle")


def event_pieces(path: Path, *, size: int = _PIECE, most: int = _MAX_EVENT) -> Iterator[bytes]:
    """The events of a trace as JSON lists of about so many bytes each.

    Cut where an event begins with its phase, as torch writes them: no string holds `{"ph"`, whose quotes would be escaped
    there. A trace that is written otherwise comes in one piece, if it is no larger than `most`.
    """
    blocks = unpacked(path) if _is_gzip(path) else _blocks(path)
    held, is_list = _after_bracket(blocks, path)
    for block in blocks:
        held += block
        if len(held) >= size and (cut := _last_opening(held)):
            yield b"[" + held[:cut].rstrip(b" \t\r\n,") + b"]"
            held = held[cut:]
        if len(held) > most:
            raise FormatError("events do not begin with their phase: too large to be read in one piece", file=path)
    end = len(held) if is_list else _end_of_array(held, 0)
    if end is None:
        raise FormatError("is cut off: the list of events does not end", file=path)
    yield b"[" + held[:end]


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            yield block


def _after_bracket(blocks: Iterator[bytes], path: Path) -> tuple[bytes, bool]:
    """What was read so far behind the "[" before the first event, and whether the file is a bare list."""
    held = b""
    for block in blocks:
        held += block
        text = held.lstrip(_BLANK)
        if text.startswith(b"["):
            return text[1:], True
        if found := _ARRAY_KEY.search(text):
            return text[found.end() :], False
        if len(held) > _MAX_HEAD:
            break
    raise FormatError('has no "traceEvents" array', file=path)


def _last_opening(events: bytes) -> int:
    """Where the last event that begins with its phase begins; 0 when none does but the first."""
    phase = events.rfind(b'"ph"')
    before = events[max(0, phase - 64) : max(0, phase)].rstrip()
    return max(0, phase - 64) + len(before) - 1 if before.endswith(b"{") else 0


def read_head(path: Path, size: int = 65536) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; b"" when it is damaged."""
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else path.open("rb") as source:
            return source.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


def read_metadata(path: Path) -> bytes:
    """A trace object without its events, as JSON: what stands before them and, in a plain file, behind them.

    b"{}" for a bare list of events and for anything else that has no "traceEvents".
    """
    # Mostly the events begin within a few kilobytes, and unpacking more takes as long as reading a small trace.
    for size in (1 << 16, 1 << 20, _MAX_HEAD):
        head = read_head(path, size)
        found = _ARRAY_KEY.search(head)
        if found or len(head) < size:
            break
    if not found:
        return b"{}"
    behind = b"}" if _is_gzip(path) else _behind_events(path, found.end() - 1)
    return head[: found.start()] + b'"traceEvents":0' + behind


def _behind_events(path: Path, start: int) -> bytes:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = _end_of_array(data, start)
        return data[end:] if end else b"}"


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _starts_with_bracket(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip(_BLANK).startswith(b"[")


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
            _copy_range(file, out, start, end)
    return target


def _copy_range(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    """Copy bytes inside the kernel where it can: twice as fast as through Python, without touching its memory."""
    try:
        while start < end:
            copied = os.sendfile(target.fileno(), source.fileno(), start, min(end - start, 1 << 30))
            if not copied:
                raise OSError("the file became shorter while it was read")
            start += copied
    except (AttributeError, OSError):
        # Not Linux, or a file system that cannot: sendfile has moved the target's position as far as it came.
        source.seek(start)
        while start < end and (block := source.read(min(end - start, _BLOCK))):
            target.write(block)
            start += len(block)


def _end_of_array(data: mmap.mmap | bytes, start: int) -> int | None:
    """Offset behind the "]" that closes the array of events; None when there is none.

    The last key `"ph"` of a file stands in the last event. Of the "]" behind it, the first that leaves the well-formed
    rest of an object closes the events: inside an event the rest has a brace too many, inside a string a quote too
    many. (Looking from the end of the file would find lists that follow the events, such as "INFO".)
    """
    position = _last_event(data, start)
    for _ in range(_MAX_LISTS_IN_EVENT):
        position = data.find(b"]", position)
        if position < 0 or len(data) - position > _MAX_TAIL:
            return None
        position += 1
        if _is_rest_of_object(data[position:]):
            return position
    return None


def _last_event(data: mmap.mmap | bytes, start: int) -> int:
    """Where the last key "ph" stands; where the array begins when it has no events."""
    position = len(data)
    while (position := data.rfind(b'"ph"', start, position)) >= 0:
        if data[position + 4 : position + 64].lstrip().startswith(b":"):
            return position
    return start


def _is_rest_of_object(rest: bytes) -> bool:
    if not rest.lstrip().startswith((b"}", b",")):
        return False
    try:
        msgspec.json.decode(b'{"_":0' + rest, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
