"""One Perfetto trace (protobuf) of all ranks on one clock: a process track per rank, below it a track per thread and stream.

A track's slices must nest, so what overlaps without nesting goes to a second track of the same name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from paceline.core.errors import PacelineError
from paceline.core.i18n import text
from paceline.formats.intervals import Times
from paceline.formats.kineto.nesting import NOTHING, Spans, innermost
from paceline.output.chrome_trace import new_file
from paceline.output.timeline import Arrow, Slice, Timeline, timeline_of
from paceline.output.writer import ExportOptions
from paceline.run.run import Run

_SEQUENCE = 1
_RANK_TRACKS = 1 << 40
"""Track ids of ranks begin here, those of lanes at 1."""
_MOST_OVERLAPPING = 1 << 20
_FLUSH = 2000
"""Packets per write."""


def export_perfetto_trace(run: Run, target: Path, *, ranks: str | None = None) -> int:
    """Write one timeline; returns the number of slices."""
    with timeline_of(run, ranks) as timeline, new_file(target) as out:
        return _Writer(_protos(), out).write(timeline)


def _protos() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise PacelineError(
            f"--to perfetto needs the package perfetto ({error})",
            hint="pip install 'paceline[perfetto]', or use --to chrome-trace, which ui.perfetto.dev opens too",
        ) from error
    return perfetto_trace_pb2


class _Writer:
    def __init__(self, messages: Any, out: BinaryIO) -> None:
        self._messages, self._out = messages, out
        self._trace: Any = messages.Trace()

    def write(self, timeline: Timeline) -> int:
        self._name_tracks(timeline)
        slices = list(timeline.slices())
        sources, targets = _flows(slices, list(timeline.arrows()))
        by_lane: dict[int, list[int]] = defaultdict(list)
        for at, each in enumerate(slices):
            by_lane[each.lane].append(at)
        for lane, members in by_lane.items():
            for row, row_members in enumerate(_nested_rows(slices, members)):
                track = lane + row * _MOST_OVERLAPPING
                if row:
                    self._add_track(track, timeline.lanes[lane - 1].name, parent=timeline.lanes[lane - 1].rank)
                self._write_row(track, [(slices[at], sources.get(at, ()), targets.get(at, ())) for at in row_members])
        self._flush()
        return len(slices)

    def _name_tracks(self, timeline: Timeline) -> None:
        first = self._trace.packet.add()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = self._messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for rank in sorted({lane.rank for lane in timeline.lanes}):
            host = timeline.hosts.get(rank)
            descriptor = self._packet().track_descriptor
            descriptor.uuid = _RANK_TRACKS + rank
            descriptor.process.pid = rank + 1  # 0 is the kernel's
            descriptor.process.process_name = f"rank {rank}" + (f" · {host}" if host else "")
        for lane in timeline.lanes:
            self._add_track(lane.number, lane.name, parent=lane.rank)

    def _add_track(self, track: int, name: str, *, parent: int) -> None:
        descriptor = self._packet().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = track, _RANK_TRACKS + parent, name

    def _write_row(self, track: int, slices: list[tuple[Slice, tuple[int, ...], tuple[int, ...]]]) -> None:
        """Begin and end of slices that nest, in the order of time."""
        open_ends: list[int] = []
        for each, sources, targets in slices:
            while open_ends and open_ends[-1] <= each.start:
                self._end(track, open_ends.pop())
            event = self._event(track, each.start, self._messages.TrackEvent.TYPE_SLICE_BEGIN)
            event.name = each.name
            if each.category:
                event.categories.append(each.category)
            event.flow_ids.extend(sources)
            event.terminating_flow_ids.extend(targets)
            for name, value in _arguments(each.args):
                annotation = event.debug_annotations.add()
                annotation.name = name
                _set_value(annotation, value)
            open_ends.append(each.start + each.duration)
        while open_ends:
            self._end(track, open_ends.pop())

    def _end(self, track: int, time: int) -> None:
        self._event(track, time, self._messages.TrackEvent.TYPE_SLICE_END)

    def _event(self, track: int, time: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = time
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event

    def _packet(self) -> Any:
        if len(self._trace.packet) >= _FLUSH:
            self._flush()
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _flush(self) -> None:
        """Traces may be concatenated: a field of the same number is appended."""
        self._out.write(self._trace.SerializeToString())
        self._trace = self._messages.Trace()


def _nested_rows(slices: list[Slice], members: list[int]) -> list[list[int]]:
    """The slices of a lane, each in the first row in which it nests."""
    rows: list[list[int]] = []
    ends: list[list[int]] = []
    """Of the slices of a row that are still open, the innermost last."""
    for at in members:
        start, end = slices[at].start, slices[at].start + slices[at].duration
        row = next((row for row, open_ends in enumerate(ends) if _fits(open_ends, start, end)), len(rows))
        if row == len(rows):
            rows.append([])
            ends.append([])
        rows[row].append(at)
        ends[row].append(end)
    return rows


def _fits(open_ends: list[int], start: int, end: int) -> bool:
    """Whether a slice nests in those that are open; closes those that have ended."""
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _flows(slices: list[Slice], arrows: list[Arrow]) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Slice → the arrows that begin in it, and those that end in it: only arrows with both."""
    if not arrows:
        return {}, {}
    spans = Spans(
        _column([each.lane for each in slices]),
        _column([each.start for each in slices]),
        _column([each.start + each.duration for each in slices]),
    )
    begin = innermost(spans, _column([each.start_lane for each in arrows]), _column([each.start for each in arrows]))
    end = innermost(spans, _column([each.end_lane for each in arrows]), _column([each.end for each in arrows]))
    sources: dict[int, tuple[int, ...]] = {}
    targets: dict[int, tuple[int, ...]] = {}
    for arrow, source, target in zip(arrows, begin.tolist(), end.tolist(), strict=True):
        if NOTHING not in (source, target):
            sources[source] = (*sources.get(source, ()), arrow.number)
            targets[target] = (*targets.get(target, ()), arrow.number)
    return sources, targets


def _column(values: list[int]) -> Times:
    return np.array(values, dtype=np.int64)


def _arguments(args: str | None) -> Iterator[tuple[str, object]]:
    if args is None:
        return
    decoded = json.loads(args)
    if isinstance(decoded, dict):
        yield from ((name, value) for name, value in decoded.items() if value is not None)


def _set_value(annotation: Any, value: object) -> None:
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class PerfettoTraceWriter:
    def default_name(self, source: str) -> str:
        return f"{source}.perfetto-trace"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        count = export_perfetto_trace(run, target, ranks=options.ranks)
        return text("output.written.perfetto_trace", options.language, target=target, count=f"{count:,}")


PERFETTO_TRACE = PerfettoTraceWriter()
