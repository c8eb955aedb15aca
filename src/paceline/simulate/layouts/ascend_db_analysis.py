"""The rows of analysis.db: the parts of each step, and the cost of its collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.simulate.layouts.ascend_communication import CommOp, comm_ops_of, large_packet_ratio, matrix_rows
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
        steps.computing,
        steps.exposed,
        steps.overlapped,
        steps.communication,
        steps.free,
        steps.duration - steps.bubble,
        steps.bubble,
        steps.exposed - steps.bubble,
        steps.first_work - steps.start,
    )
    yield from zip(map(str, steps.number.tolist()), *((column / 1000).tolist() for column in columns), strict=True)


def _times(recording: Recording) -> Iterator[Row]:
    for step, comm_op in all_comm_ops(recording):
        times = (comm_op.duration / 1e6, comm_op.transit / 1e6, comm_op.wait / 1e6, comm_op.sync / 1e6, 0)
        yield (comm_op.name, comm_op.group, comm_op.start / 1000, *times, f"step{step}", comm_op.section())


def _bandwidths(recording: Recording) -> Iterator[Row]:
    """One row per packet size; HCCS traffic is repeated in the sum called SDMA."""
    for step, comm_op in all_comm_ops(recording):
        route = comm_op.route
        if not route.sends:
            continue
        whole = (route.bytes / 1e6, comm_op.transit / 1e6, round(route.bytes / comm_op.transit, 4))
        tail = (f"step{step}", comm_op.section())
        for size, count, time in route.packet_times(comm_op.transit):
            packed = (large_packet_ratio(route), size / 1e6, count, time / 1e6)
            yield (comm_op.name, comm_op.group, route.transport.name, *whole, *packed, *tail)
        if route.transport.name == "HCCS":
            yield (comm_op.name, comm_op.group, "SDMA", *whole, 0, 0, 0, 0, *tail)


def _matrix(recording: Recording) -> Iterator[Row]:
    for step in recording.steps.number.tolist():
        for section, kind, group, link in matrix_rows(recording, step):
            ends = (str(link.source), str(link.target), link.transport)
            values = (link.size / 1e6, link.time / 1e6, link.bandwidth)
            yield (kind, group, *ends, *values, f"step{step}", section, link.op_name)


def all_comm_ops(recording: Recording) -> Iterator[tuple[int, CommOp]]:
    for step in recording.steps.number.tolist():
        for comm_op in comm_ops_of(recording, step):
            yield step, comm_op
