"""Queue files of MindData: how long it took to get and push each batch, and how full the queue was.

device_queue_profiling_{r}.txt      device_queue  "type sub step value [time]", times in ms
dataset_iterator_profiling_{r}.txt  iterator      the same
minddata_aicpu_{r}.txt              get_next      "GetNext_dequeue_wait start end size", µs
minddata_getnext_profiling_{r}.txt  get_next      the same in ns (GPU)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import RecordingSection, Sink
from paceline.storage.file_tree import File

MAX_BYTES = 1 << 30

_MILLISECOND, _MICROSECOND, _NANOSECOND = 1_000_000, 1_000, 1
_TIMES = {0: "get_time", 1: "push_time", 2: "total_time"}

Row = dict[str, int]
Lines = Iterable[tuple[int, list[str]]]
Parse = Callable[[Lines, list[int]], Iterable[Row]]


def queue_sections(files: Mapping[str, File], rank: int) -> list[RecordingSection]:
    """One section per queue file of this rank."""
    known: tuple[tuple[str, str, Parse], ...] = (
        (f"device_queue_profiling_{rank}.txt", "device_queue", batches),
        (f"dataset_iterator_profiling_{rank}.txt", "iterator", batches),
        (f"minddata_aicpu_{rank}.txt", "get_next", partial(dequeues, unit=_MICROSECOND)),
        (f"minddata_getnext_profiling_{rank}.txt", "get_next", partial(dequeues, unit=_NANOSECOND)),
    )
    return [_section(files[name], queue, parse) for name, queue, parse in known if name in files]


def _section(file: File, queue: str, parse: Parse) -> RecordingSection:
    return RecordingSection(
        f"minddata {queue}", frozenset({"input_steps"}), (file,), partial(_read, file, queue, parse)
    )


def batches(lines: Lines, bad: list[int]) -> Iterable[Row]:
    """Lines `type sub step value [time]`, combined to one row per batch.

    type 0: sub 0 get, 1 push, 2 total, value in ms; type 1: sub = capacity of the queue, value = batches in it.
    """
    rows: list[Row] = []
    open_rows: dict[int, Row] = {}
    for number, words in lines:
        values = _reading(words)
        if values is None:
            bad.append(number)
            continue
        step = values["step"]
        row = open_rows.get(step)
        # A second reading of the same kind for a step: counting started again (a new epoch or dataset).
        if row is None or not values.keys().isdisjoint(row.keys() - {"step", "time"}):
            row = open_rows[step] = {}
            rows.append(row)
        row.update(values)
    return rows


def _reading(words: list[str]) -> Row | None:
    """The values of one line; None if it is not such a line."""
    try:
        kind, sub, step, value, *time = (int(word) for word in words)
    except ValueError:
        return None
    values = {"step": step} | ({"time": time[0] * _MILLISECOND} if time else {})
    if kind == 1:
        return values | {"capacity": sub, "size": value}
    if kind == 0 and sub in _TIMES:
        return values | {_TIMES[sub]: value * _MILLISECOND}
    return None


def dequeues(lines: Lines, bad: list[int], *, unit: int) -> Iterator[Row]:
    """Lines `GetNext_dequeue_wait start end size`, one per batch; other stages of GetNext are ignored."""
    step = 0
    for number, words in lines:
        if len(words) != 4:
            bad.append(number)
        elif words[0].endswith("dequeue_wait"):
            try:
                start, end, size = (int(word) for word in words[1:])
            except ValueError:
                bad.append(number)
                continue
            step += 1
            yield {"step": step, "size": size, "get_time": (end - start) * unit, "time": start * unit}


def _read(file: File, queue: str, parse: Parse, sink: Sink) -> None:
    if file.size > MAX_BYTES:
        raise FormatError(message("larger_refused", size=f"{MAX_BYTES >> 20} MiB"), file=file.path)
    bad: list[int] = []
    with file.path.open(encoding="utf-8-sig") as text:
        rows = list(parse(_lines(text), bad))
    if bad:
        sink.warn(message("bad_lines", n=len(bad)), file=file.path, line=bad[0])
    names = sorted({name for row in rows for name in row})
    if rows:
        sink.add("input_steps", {name: [row.get(name) for row in rows] for name in names} | {"queue": queue})


def _lines(text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    return ((number, words) for number, line in enumerate(text, 1) if (words := line.split()))
