"""Loading of Chrome-trace JSON into DuckDB: lists or {"traceEvents": […]}, plain or gzip, times as numbers or strings.

DuckDB reads JSON arrays at 200 MB per CPU second but objects thirty times slower, so the array inside an object is
copied to a file first. No Python object is created per event.
"""

from __future__ import annotations

import mmap
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.core.scratch_directory import scratch_directory
from paceline.formats.chrome_trace.repaired_json import repair_json, repaired

if TYPE_CHECKING:
    import duckdb

MAX_UNPACKED = 64 << 30
"""Bytes; gzip files that unpack to more are refused: no recording of one rank is that large."""
MAX_RATIO = 200
"""Compression ratio; real traces reach 10 to 60, a decompression bomb 1000."""

_BLOCK = 8 << 20
_PIECE = 2 << 20
_BLANK = b"\xef\xbb\xbf \t\r\n"
_PACKED = 64 << 10
"""Bytes that are unpacked at once; the result is at most a thousand times as large."""
_PACKED_HEAD = 16 << 10
_MAX_EVENT = 16 << 20
"""Bytes; no event is larger."""
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*(.)')
_MAX_TAIL = 16 << 20
"""Bytes; only metadata follows the events."""
_MAX_HEAD = 16 << 20
_MAX_REPAIRED = 1 << 20
_MAX_LISTS_IN_EVENT = 10_000
_FIRST_BRACKET = re.compile(rb"\[")
_ARRAY_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')


class CutOffError(FormatError):
    """A file that ends in the middle."""


def load_trace(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    table: str = "trace",
    args: Mapping[str, str] | None = None,
    integers: frozenset[str] = frozenset(),
    phases: str | None = None,
    whole: bool = True,
    all_args: bool = False,
) -> bool:
    """Create a temporary table of the events of a trace, or only of some phases ("XBEM" = spans and metadata).

    Columns: ph, name, pid, tid, cat, id (text), ts and dur (int64 ns; null if missing or not a number), and one
    text column per entry of `args` (column name → key inside the event's "args" object); int64 for those in `integers`. With
    `all_args` also a column `args`: the whole object as JSON.

    Returns whether the trace is cut off, which is an error unless `whole` is false: then everything before the cut is read.

    Times written as JSON numbers pass through a double: microseconds since 1970 are exact to 0.25 µs, times relative
    to a base (newer torch) and times in strings (Ascend) to the nanosecond.
    """
    cut: list[str] = []
    options = {"args": args, "integers": integers, "phases": phases, "all_args": all_args}
    with trace_query(path, cut=None if whole else cut, **options) as (select, values):  # type: ignore[arg-type]
        _create_table(connection, f'CREATE OR REPLACE TEMP TABLE "{table}" AS {select}', values)
    _close_spans(connection, table)
    return bool(cut)


_CLOSED = """
    WITH marks AS (
        SELECT rowid AS place, *, sum(if(ph = 'B', 1, -1)) OVER (PARTITION BY pid, tid ORDER BY ts, rowid) AS level
        FROM "{table}" WHERE ph IN ('B', 'E') AND ts IS NOT NULL
    ), paired AS (
        SELECT place, ph, ts, lead(ph) OVER same AS next, lead(ts) OVER same AS closed
        FROM marks WINDOW same AS (PARTITION BY pid, tid, if(ph = 'B', level, level + 1) ORDER BY ts, place)
    )
    UPDATE "{table}" SET ph = 'X', dur = closed - paired.ts
    FROM paired WHERE "{table}".rowid = place AND paired.ph = 'B' AND next = 'E'
"""
"""An end closes what its thread began last."""


def _close_spans(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make one span of what is written as begin and end (ph "B" and "E"); what never ends is left out."""
    marks = f"FROM \"{table}\" WHERE ph IN ('B', 'E')"
    if connection.execute(f"SELECT 1 {marks} LIMIT 1").fetchall():
        connection.execute(_CLOSED.format(table=table))
        connection.execute(f"DELETE {marks}")


def _create_table(connection: duckdb.DuckDBPyConnection, create: str, values: list[object]) -> None:
    """`values` begin with the file and the limit for the size of an event; a file that is not valid JSON is repaired."""
    import duckdb  # the quick path of torch traces does without

    try:
        connection.execute(create, values)
    except duckdb.Error as error:
        if "Malformed JSON" not in str(error):
            raise
        with scratch_directory() as scratch:
            array = repair_json(Path(str(values[0])), scratch / "repaired.json")
            connection.execute(create, [str(array), _largest(array), *values[2:]])


@contextmanager
def trace_query(
    path: Path,
    *,
    args: Mapping[str, str] | None = None,
    integers: frozenset[str] = frozenset(),
    phases: str | None = None,
    cut: list[str] | None = None,
    all_args: bool = False,
) -> Iterator[tuple[str, list[object]]]:
    """The SELECT of `load_trace` and its parameters, for rows that are used only once; `cut` as in _as_array."""
    with _as_array(path, cut) as array:
        times = _NUMBERS if _times_are_numbers(array) else _TEXT
        types = {key: "BIGINT" if column in integers else "VARCHAR" for column, key in (args or {}).items()}
        yield (
            _select(args or {}, types, times, phases, all_args=all_args),
            [str(array), _largest(array), *(phases or "")],
        )


def load_counters(connection: duckdb.DuckDBPyConnection, path: Path, *, table: str = "counters") -> None:
    """Create a temporary table of a trace's counter samples (ph "C"): name, series, ts (int64 ns) and value.

    Their "args" have a key per series, which is not known beforehand: files that have any are read a second time.
    """
    with _as_array(path) as array:
        times = _NUMBERS if _times_are_numbers(array) else _TEXT
        connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE "{table}" AS
            WITH events AS (
                FROM read_json(?, format = 'array', ignore_errors = true, maximum_object_size = ?,
                    columns = {{
                        ph: 'VARCHAR', name: 'VARCHAR', ts: '{times.type}', args: 'MAP(VARCHAR, DOUBLE)'}})
            ), samples AS (
                SELECT name, {times.to_ns.format("ts")} AS ts, unnest(map_entries(args)) AS sample
                FROM events
                WHERE ph = 'C'
            )
            SELECT name, sample.key AS series, ts, sample.value AS value FROM samples WHERE sample.value IS NOT NULL
            """,
            [str(array), _largest(array)],
        )


@dataclass(frozen=True)
class _Times:
    """The type as which DuckDB reads "ts", and the SQL that converts it to int64 nanoseconds."""

    type: str
    to_ns: str


_LENGTH = "TRY_CAST(round(dur * 1000) AS BIGINT)"
"""A double holds durations to the nanosecond."""
_NUMBERS = _Times("DOUBLE", "TRY_CAST(trunc({0}) AS BIGINT) * 1000 + TRY_CAST(round({0} % 1 * 1000) AS BIGINT)")
"""Twice as fast as text. Integer and fraction apart: a product would lose another 128 ns of µs since 1970."""
_TEXT = _Times(
    "VARCHAR",
    "if({0}[-4] = '.', TRY_CAST(replace({0}, '.', '') AS BIGINT),"
    " TRY_CAST(TRY_CAST({0} AS DECIMAL(30, 3)) * 1000 AS BIGINT))",
)
"""For files with strings (Ascend): exact to the nanosecond; most have three decimals."""


def _largest(array: Path) -> int:
    """Limit for the size of an event. DuckDB allocates and touches twice this per thread before it reads the first event."""
    return min(_MAX_EVENT, max(array.stat().st_size, 1 << 20))


def _select(
    args: Mapping[str, str], types: Mapping[str, str], times: _Times, phases: str | None, *, all_args: bool
) -> str:
    """Parameters: path, limit for the size of an event, then the phases."""
    fields = ", ".join(f'"{key}" {types[key]}' for key in sorted(types))
    struct = ", args: 'JSON'" if all_args else f", args: 'STRUCT({fields})'" if fields else ""
    chosen = f"WHERE ph IN ({', '.join('?' * len(phases))})" if phases else ""
    if phases == "X":
        # Spans without a time are left out. Tested on the text: the number would be computed twice.
        chosen += " AND event.ts IS NOT NULL"
    # ignore_errors turns values of the wrong type into null; invalid JSON still raises.
    if all_args:
        found = {column: f"TRY_CAST(args->>'$.\"{key}\"' AS {types[key]})" for column, key in args.items()}
        picked = "".join(f', {value} AS "{column}"' for column, value in found.items()) + ", args::VARCHAR AS args"
    else:
        picked = "".join(f', args."{key}" AS "{column}"' for column, key in args.items())
    return f"""
        SELECT ph, name, pid, tid, cat, id, {times.to_ns.format("ts")} AS ts, {_LENGTH} AS dur{picked}
        FROM read_json(?, format = 'array', ignore_errors = true, maximum_object_size = ?, columns = {{
            ph: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR', cat: 'VARCHAR', id: 'VARCHAR',
            ts: '{times.type}', dur: 'DOUBLE'{struct}}}) AS event
        {chosen}
    """


def _times_are_numbers(array: Path) -> bool:
    with array.open("rb") as file:
        found = _FIRST_TIME.search(file.read(1 << 20))
    return found is not None and found[1] != b'"'


@contextmanager
def _as_array(path: Path, cut: list[str] | None = None) -> Iterator[Path]:
    """A file that holds only the JSON array of events: the file itself, or a temporary copy of its array.

    A trace that is cut off raises; if a list `cut` is given, the events before the cut are kept and the list tells why.
    """
    if path.stat().st_size == 0:
        raise FormatError(message("empty"), file=path)
    packed = is_gzip(path)
    if not packed and _starts_with_bracket(path) and (cut is None or _ends_with_bracket(path)):
        yield path
        return
    with scratch_directory() as scratch:
        plain = _unpacked(path, scratch / "unpacked.json", cut) if packed else path
        if _starts_with_bracket(plain) and (cut is None or _ends_with_bracket(plain)):
            yield plain
        else:
            yield _copy_array(plain, scratch / "array.json", named=path, cut=cut)


def _unpacked(path: Path, target: Path, cut: list[str] | None) -> Path:
    try:
        return unpack(path, target)
    except CutOffError as error:
        if cut is None:
            raise
        cut.append(str(error))
        return target


def unpack(path: Path, target: Path) -> Path:
    """Decompress a gzip file, up to a limit."""
    with target.open("wb") as out:
        for block in unpacked(path):
            out.write(block)
    return target


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a gzip file in blocks, up to a limit."""
    limit = min(MAX_UNPACKED, max(path.stat().st_size * MAX_RATIO, 64 << 20))
    given = 0
    try:
        for block in _members(path):
            given += len(block)
            if given > limit:
                raise FormatError(message("unpacks_refused", size=f"{limit >> 20:,} MiB"), file=path)
            yield block
    except (EOFError, zlib.error) as error:
        raise CutOffError(message("gzip", error=error), file=path) from error


def _members(path: Path) -> Iterator[bytes]:
    """Without the gzip module: it returns 8 kB at a time, which takes as long as unpacking them."""
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
    """The events of a trace as JSON lists of about `size` bytes each.

    Split where an event begins with its phase, as torch writes them: no string contains `{"ph"`, because its quotes would
    be escaped. Traces that are written differently are returned in one piece, if they are no larger than `most`.
    """
    blocks = unpacked(path) if is_gzip(path) else _blocks(path)
    buffer, is_list = _after_bracket(blocks, path)
    for block in blocks:
        buffer += block
        if len(buffer) >= size and (cut := _last_opening(buffer)):
            yield b"[" + buffer[:cut].rstrip(b" \t\r\n,") + b"]"
            buffer = buffer[cut:]
        if len(buffer) > most:
            raise FormatError(message("phase_first"), file=path)
    end = len(buffer) if is_list else _end_of_array(buffer, 0)
    if end is None:
        raise FormatError(message("cut_events"), file=path)
    yield b"[" + buffer[:end]


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            yield block


def _after_bracket(blocks: Iterator[bytes], path: Path) -> tuple[bytes, bool]:
    """What was read so far after the "[" before the first event, and whether the file is a bare list."""
    buffer = b""
    for block in blocks:
        buffer += block
        text = buffer.lstrip(_BLANK)
        if text.startswith(b"["):
            return text[1:], True
        if found := _ARRAY_KEY.search(text):
            return text[found.end() :], False
        if len(buffer) > _MAX_HEAD:
            break
    raise FormatError(message("no_events"), file=path)


def _last_opening(events: bytes) -> int:
    """Offset of the last event that begins with its phase; 0 if only the first does."""
    phase = events.rfind(b'"ph"')
    before = events[max(0, phase - 64) : max(0, phase)].rstrip()
    return max(0, phase - 64) + len(before) - 1 if before.endswith(b"{") else 0


def read_head(path: Path, size: int = 65536) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; what comes before the damage if it is damaged."""
    try:
        with path.open("rb") as source:
            return _unpacked_head(source, size) if is_gzip(path) else source.read(size)
    except OSError:
        return b""


def _unpacked_head(source: BinaryIO, size: int) -> bytes:
    head, member = b"", zlib.decompressobj(wbits=31)
    packed = source.read(_PACKED_HEAD)
    while packed and len(head) < size:
        try:
            head += member.decompress(packed, size - len(head))
        except zlib.error:
            break
        packed = member.unconsumed_tail
        if member.eof:
            packed, member = member.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
        packed = packed or source.read(_PACKED_HEAD)
    return head


def read_metadata(path: Path) -> bytes:
    """A trace object without its events, as JSON: the keys before them and, in a plain file, after them.

    b"{}" for a bare list of events and for anything else without "traceEvents".
    """
    # Events usually begin within a few kilobytes, and unpacking more takes as long as reading a small trace.
    for size in (1 << 16, 1 << 20, _MAX_HEAD):
        head = read_head(path, size)
        found = _ARRAY_KEY.search(head)
        if found or len(head) < size:
            break
    if not found:
        return b"{}"
    rest = b"}" if is_gzip(path) else _after_events(path, found.end() - 1)
    return head[: found.start()] + b'"traceEvents":0' + rest


def _after_events(path: Path, start: int) -> bytes:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = _end_of_array(data, start)
        return data[end:] if end else b"}"


def is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _ends_with_bracket(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read().rstrip(_BLANK).endswith(b"]")


def _starts_with_bracket(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip(_BLANK).startswith(b"[")


def _copy_array(path: Path, target: Path, *, named: Path, cut: list[str] | None = None) -> Path:
    """Copy the "traceEvents" array of an object to a file."""
    if path.stat().st_size == 0:
        raise FormatError(message("unpack"), file=named)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        is_list = _starts_with_bracket(path)
        found = _FIRST_BRACKET.search(data) if is_list else _ARRAY_KEY.search(data)
        if not found:
            raise FormatError(message("no_events"), file=named)
        start = found.end() - 1
        end = None if is_list else _end_of_array(data, start)
        ending = b""
        if end is None:
            end, ending = _last_whole_event(data, start), b"]"
            if cut is None or end is None:
                raise FormatError(message("cut_events"), file=named)
            cut.append("the list of events does not end")
        with target.open("wb") as out:
            _copy_range(file, out, start, end)
            out.write(ending)
    return target


def _last_whole_event(data: mmap.mmap, start: int) -> int | None:
    """Offset after the last event that is complete."""
    end = len(data)
    for _ in range(_MAX_LISTS_IN_EVENT):
        end = data.rfind(b"}", start, end)
        if end < 0:
            return None
        # From the brace before the phase to this one is an event; up to a brace inside it, it cannot be decoded.
        opening = data.rfind(b'"ph"', start, end)
        brace = data.rfind(b"{", start, opening) if opening > 0 else -1
        if brace >= 0 and _is_object(data[brace : end + 1]):
            return end + 1
    return None


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _copy_range(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    """Copy bytes with sendfile if possible: twice as fast as through Python."""
    try:
        while start < end:
            copied = os.sendfile(target.fileno(), source.fileno(), start, min(end - start, 1 << 30))
            if not copied:
                raise OSError("the file became shorter while it was read")
            start += copied
    except (AttributeError, OSError):
        # Not supported here: the target's position is where sendfile stopped.
        source.seek(start)
        while start < end and (block := source.read(min(end - start, _BLOCK))):
            target.write(block)
            start += len(block)


def _end_of_array(data: mmap.mmap | bytes, start: int) -> int | None:
    """Offset after the "]" that closes the array of events; None if there is none.

    The last key `"ph"` of a file is in the last event. Of the "]" after it, the first that is followed by the
    well-formed rest of an object closes the events: inside an event the rest has a brace too many, inside a string a
    quote too many. (Searching from the end of the file would find lists that follow the events, such as "INFO".)
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
    """Offset of the last key "ph"; the start of the array if it has no events."""
    position = len(data)
    while (position := data.rfind(b'"ph"', start, position)) >= 0:
        if data[position + 4 : position + 64].lstrip().startswith(b":"):
            return position
    return start


def _is_rest_of_object(rest: bytes) -> bool:
    if not rest.lstrip().startswith((b"}", b",")):
        return False
    text = b'{"_":0' + rest
    return _is_object(text) or (b"\\" in text and len(text) < _MAX_REPAIRED and _is_object(repaired(text)))
