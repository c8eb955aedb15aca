"""One Chrome trace of all ranks on one clock, which Perfetto opens, with arguments and flow arrows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paceline.core.atomic_write import atomic_write_path
from paceline.core.i18n import text
from paceline.output.timeline import Timeline, timeline_of
from paceline.output.writer import ExportOptions
from paceline.run.run import Run


def export_chrome_trace(run: Run, target: Path, *, ranks: str | None = None) -> int:
    """Write one timeline; times are µs since its first event, so that viewers keep nanoseconds."""
    count = 0
    with timeline_of(run, ranks) as timeline, new_file(target) as out:
        out.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        separator = b""
        for line in _trace_lines(timeline):
            out.write(separator + line)
            separator = b",\n"
            count += 1
        out.write(b"\n]}\n")
    return count


def _trace_lines(timeline: Timeline) -> Iterator[bytes]:
    for rank in sorted({lane.rank for lane in timeline.lanes}):
        name = f"rank {rank}" + (f" · {timeline.hosts[rank]}" if timeline.hosts.get(rank) else "")
        yield _json({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}})
        yield _json({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    ranks = {lane.number: lane.rank for lane in timeline.lanes}
    for lane in timeline.lanes:
        yield _json(
            {"ph": "M", "name": "thread_name", "pid": lane.rank, "tid": lane.number, "args": {"name": lane.name}}
        )
    for each in timeline.slices():
        event: dict[str, object] = {
            "ph": "X",
            "name": each.name,
            "cat": each.category,
            "pid": ranks[each.lane],
            "tid": each.lane,
            "ts": each.start / 1000,
            "dur": each.duration / 1000,
        }
        line = _json(event)
        yield line if each.args is None else line[:-1] + b', "args": ' + each.args.encode() + b"}"
    for arrow in timeline.arrows():
        shared = {"name": arrow.name, "cat": arrow.category or "flow", "id": arrow.number}
        for phase, number, at in (("s", arrow.start_lane, arrow.start), ("f", arrow.end_lane, arrow.end)):
            end = {"bp": "e"} if phase == "f" else {}
            yield _json({"ph": phase, **shared, "pid": ranks[number], "tid": number, "ts": at / 1000, **end})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all; gzip when its name says so."""
    with atomic_write_path(target) as path, path.open("wb") as plain:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain, mode="wb", compresslevel=5) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield plain


class ChromeTraceWriter:
    def default_name(self, source: str) -> str:
        return f"{source}.trace.json.gz"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        count = export_chrome_trace(run, target, ranks=options.ranks)
        return text("output.written.chrome_trace", options.language, target=target, count=f"{count:,}")


CHROME_TRACE = ChromeTraceWriter()
