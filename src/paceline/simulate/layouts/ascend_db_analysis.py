"""The rows of analysis.db: the split of each step and what its collectives cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.simulate.layouts.ascend_communication import Talk, large_packet_ratio, matrix_rows, talks_of
from paceline.simulate.recording import Recording

Row = tuple[object, ...]


def analysis(recording: Recording) -> Iterator[tuple[str, Iterable[Row]]]:
    yield "StepTraceTime", _step_trace(recording)
    yield "CommAnalyzerTime", _times(recording)
    yield "CommAnalyzerBandwidth", _bandwidths(recording)
    yield "CommAnalyzerMatrix", _matrix(recording)


def _step_trace(recording: Recording) -> Iterator[Row]:
    steps = recording.steps
    columns = (
        steps.computing, steps.exposed, steps.overlapped, steps.communication, steps.free,
        steps.duration - steps.bubble, steps.bubble, steps.exposed - steps.bubble, steps.first_work - steps.start,
    )  # fmt: skip
    yield from zip(map(str, steps.number.tolist()), *((column / 1000).tolist() for column in columns), strict=True)


def _times(recording: Recording) -> Iterator[Row]:
    for step, talk in all_talks(recording):
        times = (talk.duration / 1e6, talk.transit / 1e6, talk.wait / 1e6, talk.sync / 1e6, 0)
        yield (talk.name, talk.group, talk.start / 1000, *times, f"step{step}", talk.section())


def _bandwidths(recording: Recording) -> Iterator[Row]:
    """One row per packet size; HCCS traffic is told again in the sum called SDMA."""
    for step, talk in all_talks(recording):
        wire = talk.wire
        if not wire.sends:
            continue
        whole = (wire.bytes / 1e6, talk.transit / 1e6, round(wire.bytes / talk.transit, 4))
        tail = (f"step{step}", talk.section())
        for size, count, time in wire.packet_times(talk.transit):
            packed = (large_packet_ratio(wire), size / 1e6, count, time / 1e6)
            yield (talk.name, talk.group, wire.transport.name, *whole, *packed, *tail)
        if wire.transport.name == "HCCS":
            yield (talk.name, talk.group, "SDMA", *whole, 0, 0, 0, 0, *tail)


def _matrix(recording: Recording) -> Iterator[Row]:
    for step in recording.steps.number.tolist():
        for section, kind, group, link in matrix_rows(recording, step):
            ends = (str(link.source), str(link.target), link.transport)
            values = (link.size / 1e6, link.time / 1e6, link.bandwidth)
            yield (kind, group, *ends, *values, f"step{step}", section, link.op_name)


def all_talks(recording: Recording) -> Iterator[tuple[int, Talk]]:
    for step in recording.steps.number.tolist():
        for talk in talks_of(recording, step):
            yield step, talk
