"""ascend_timeline_display_{rank}.json: MindSpore's Chrome trace, relative to the first device time stamp."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.simulate.intervals import Intervals, union
from paceline.simulate.layouts.ascend_names import graph_name
from paceline.simulate.layouts.mindspore_steps import STREAMS
from paceline.simulate.model import CPU
from paceline.simulate.recording import Recording

AI_CPU, COMMUNICATION, OVERLAP = 9000, 10000, 12000
STEPS = 100000
COMPUTE_STREAM = 519
LEAD = 1_000_000  # ns from the first time stamp of the device to the first step


def kernel_name(recording: Recording, template: int) -> str:
    """MatMulV2-op17: a graph runs each of its operators once per step."""
    return f"{recording.program.kernels[template].type}-op{len(recording.program.messages) + template + 1}"


def timeline(recording: Recording) -> Iterator[str]:
    zero = int(recording.steps.start[0]) - LEAD
    device = recording.cluster.device(recording.rank)
    for index in range(len(recording.steps.number)):
        yield _bar(str(recording.steps.number[index]), device, STEPS, _span(recording, index), zero)
        yield from _operators(recording, int(recording.steps.number[index]), device, zero)
        yield from _overlap(recording, index, zero)
    yield from _metadata(device)


def _span(recording: Recording, index: int) -> tuple[int, int]:
    return int(recording.steps.start[index]), int(recording.steps.duration[index])


def _operators(recording: Recording, step: int, device: int, zero: int) -> Iterator[str]:
    kernels, comm_ops = recording.kernels.of(step), recording.comm_ops.of(step)
    names = [kernel_name(recording, number) for number in range(len(recording.program.kernels))]
    on_cpu = [kernel.core == CPU for kernel in recording.program.kernels]
    rows = zip(kernels.template.tolist(), kernels.start.tolist(), kernels.duration.tolist(), strict=True)
    for template, start, duration in rows:
        pid, tid = (AI_CPU, 0) if on_cpu[template] else (device, COMPUTE_STREAM)
        yield _bar(names[template], pid, tid, (start, duration), zero)
    rows = zip(comm_ops.template.tolist(), comm_ops.start.tolist(), comm_ops.duration.tolist(), strict=True)
    for template, start, duration in rows:
        message = recording.program.messages[template]
        stream = STREAMS[message.op if message.op in STREAMS else message.axis]
        yield _bar(graph_name(recording, template), COMMUNICATION, stream, (start, duration), zero)


def _overlap(recording: Recording, index: int, zero: int) -> Iterator[str]:
    step = int(recording.steps.number[index])
    computing, communicating = recording.computing(step), recording.communicating(step)
    whole = union(recording.steps.start[index : index + 1], recording.steps.duration[index : index + 1])
    yield from _bars("computation_op", 7999, computing, zero)
    yield from _bars("communication_not_overlapped", 8000, communicating - computing, zero)
    yield from _bars("communication_op", 8001, communicating, zero)
    yield from _bars("free_time", 8002, whole - computing - communicating, zero)


def _bars(name: str, tid: int, intervals: Intervals, zero: int) -> Iterator[str]:
    for start, end in zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True):
        yield _bar(name, OVERLAP, tid, (start, end - start), zero)


def _bar(name: str, pid: int, tid: int, span: tuple[int, int], zero: int) -> str:
    start, duration = span
    return (
        f'{{"name": "{name}", "ph": "X", "tid": {tid}, "ts": {(start - zero) / 1000}, "dur": {duration / 1000}, '
        f'"pid": {pid}}}'
    )


def _metadata(device: int) -> Iterator[str]:
    """The device's pid is a number in events and a string here, as in the real files."""
    labels = (
        (f'"{device}"', "AICORE OP"),
        (AI_CPU, "AICPU OP"),
        (COMMUNICATION, "Communication Op"),
        (OVERLAP, "Op Overlap Analyse"),
    )
    for pid, label in labels:
        yield f'{{"name": "process_labels", "ph": "M", "pid": {pid}, "args": {{"labels": "{label}"}}}}'
    threads = (
        (f'"{device}"', STEPS, "Steps"),
        (OVERLAP, 7999, "Merged Computation Op"),
        (OVERLAP, 8000, "Pure Communication Op"),
        (OVERLAP, 8001, "Merged Communication Op"),
        (OVERLAP, 8002, "Free Time"),
    )
    for pid, tid, name in threads:
        yield f'{{"name": "thread_name", "ph": "M", "pid": {pid}, "tid": {tid}, "args": {{"name": "{name}"}}}}'
