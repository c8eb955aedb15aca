"""The log of a recorder as tables.

    exposed        time for which the training thread was blocked: blocking calls, and waiting for asynchronous ones
    communication  union of the collectives whose end is known, at least `exposed`
    computing      step - exposed - data wait: the host's time (the recorder does not see idle time of a device)
    free           data wait

Collectives are numbered within their step by (group, operation, partner): sequence = step · 10⁶ + position, equal on all
members even if the recording of one rank begins later. Calls that only queued work for a device have no duration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.core.collective_names import group_kind
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.intervals import merge_intervals

TABLES = frozenset({"ranks", "groups", "steps", "collectives", "memory", "events"})
PER_STEP = 1_000_000
_FORWARD = ("forward", "backward", "forward_backward")
_TAIL = ("tail", "optimizer", "optimizer_step")
_MOST_MEMBERS = 1 << 20

Columns = dict[str, list[Any]]


class LogStep(msgspec.Struct):
    step: int
    t: int
    d: int
    p: list[tuple[str, int, int]] = []
    c: list[tuple[str, str, int, int | None, int | None, int, int | None]] = []
    m: tuple[int, int | None, int | None, int | None] | None = None
    more: tuple[int, int] = (0, 0)


class GroupMembers(msgspec.Struct):
    ranks: list[int]
    called: str = ""


class _Other(msgspec.Struct):
    """A line with a head, a group or an event."""

    segment: int | None = None
    warm_up: int = 0
    started: int | None = None
    groups: dict[str, GroupMembers] = {}
    group: str | None = None
    ranks: list[int] = []
    called: str = ""
    event: str | None = None
    text: str = ""
    step: int | None = None


_STEP = msgspec.json.Decoder(LogStep)
_OTHER = msgspec.json.Decoder(_Other)
_WARNED_EVENTS = ("stall", "exception", "sigterm")


class SessionLog:
    """The content of all segments of one session."""

    def __init__(self) -> None:
        self.started = 0
        self.steps: dict[int, LogStep] = {}
        self.groups: dict[str, GroupMembers] = {}
        self.events: list[_Other] = []
        self.warm_up = 0
        """Number of first steps that include what came before the loop; 0 if these were already removed from the ring."""

    def add_line(self, line: bytes) -> None:
        if line.startswith(b'{"step"'):
            step = _STEP.decode(line)
            self.steps[step.step] = step
            return
        other = _OTHER.decode(line)
        if other.started is not None:
            self.started = other.started
            if other.segment == 1:
                self.warm_up = max(0, other.warm_up)
        self.groups.update(other.groups)
        if other.group is not None:
            self.groups[other.group] = GroupMembers(other.ranks, other.called)
        if other.event is not None:
            self.events.append(other)

    def steps_after_warm_up(self) -> list[LogStep]:
        """Steps in order, without the warm-up."""
        steps = [self.steps[number] for number in sorted(self.steps)]
        return steps[self.warm_up :] if len(steps) > 2 * self.warm_up else steps


def read_log(segments: tuple[Path, ...], host: str | None, device: int | None, sink: Sink) -> None:
    log = SessionLog()
    for path in segments:
        _read_segment(path, log, sink)
    for event in log.events:
        if event.event in _WARNED_EVENTS:
            told = message("event_in_step", name=event.event, step="?" if event.step is None else event.step)
            what = event.text.rstrip(": ")
            sink.warn(message("at", place=told, said=what) if what else told, file=segments[-1])
    sink.add("ranks", {"host": [host], "device": [device]})
    _add_groups(log, sink)
    steps = log.steps_after_warm_up()
    if not steps:
        return
    sink.add("steps", step_columns(log.started, steps))
    sink.add("collectives", collective_columns(log.started, steps))
    sink.add("memory", _memory_columns(log.started, steps))
    if sink.wants("events"):
        sink.add("events", event_columns(log.started, steps))


def _read_segment(path: Path, log: SessionLog, sink: Sink) -> None:
    """A last line without a line end is still being written, or its writer was killed: it is ignored."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # removed from the ring since the directory was listed
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        if not line:
            continue
        try:
            log.add_line(line)
        except (msgspec.DecodeError, RecursionError) as error:
            sink.warn(message("not_record", error=error), file=path, line=number)


def _add_groups(log: SessionLog, sink: Sink) -> None:
    columns: Columns = defaultdict(list)
    for name, members in log.groups.items():
        for index, rank in enumerate(members.ranks[:_MOST_MEMBERS]):
            columns["group"].append(name)
            columns["kind"].append(_kind(members.called))
            columns["index"].append(index)
            columns["rank"].append(rank)
    sink.add("groups", columns)


def _kind(called: str) -> str:
    return group_kind(called.removeprefix("mesh_"))


def step_columns(started: int, steps: list[LogStep]) -> Columns:
    begin = np.array([started + step.t for step in steps], dtype=np.int64)
    length = np.array([step.d for step in steps], dtype=np.int64)
    exposed = np.minimum([sum(collective[5] for collective in step.c) + step.more[1] for step in steps], length)
    ends = [
        (started + step.t + start, started + step.t + start + length)
        for step in steps
        for _, _, start, length, *_ in step.c
        if length is not None
    ]
    spans = np.array(ends, dtype=np.int64).reshape(-1, 2)
    communicates = any(step.c for step in steps)
    communication = np.maximum(merge_intervals(spans[:, 0], spans[:, 1]).covered(begin, begin + length), exposed)
    waits = [_phase_time(step, ("data_wait",)) for step in steps]
    waited = np.minimum([wait or 0 for wait in waits], length - exposed)
    return {
        "step": [step.step for step in steps],
        "start": list(begin),
        "end": list(begin + length),
        "duration": list(length),
        "data_wait": waits,
        "forward_backward": [_phase_time(step, _FORWARD) for step in steps],
        "tail": [_phase_time(step, _TAIL) for step in steps],
        "computing": list(length - exposed - waited),
        "communication": list(communication) if communicates else [None] * len(steps),
        "overlapped": list(communication - exposed) if communicates else [None] * len(steps),
        "exposed": list(exposed) if communicates else [None] * len(steps),
        "free": list(waited),
    }


def _phase_time(step: LogStep, names: tuple[str, ...]) -> int | None:
    found = [length for name, _, length in step.p if name in names]
    return min(sum(found), step.d) if found else None


def collective_columns(started: int, steps: Iterable[LogStep]) -> Columns:
    columns: Columns = defaultdict(list)
    for step in steps:
        positions: Counter[tuple[str, str, int | None]] = Counter()
        for op, group, start, length, size, _, peer in step.c:
            key = (group, op, peer)
            columns["step"].append(step.step)
            columns["group"].append(group or None)
            columns["op"].append(op)
            columns["name"].append(f"{op}_{positions[key]}")
            columns["sequence"].append(step.step * PER_STEP + positions[key])
            columns["peer"].append(peer)
            columns["start"].append(started + step.t + start)
            columns["duration"].append(length)
            columns["bytes"].append(size)
            positions[key] += 1
    return columns


def _memory_columns(started: int, steps: Iterable[LogStep]) -> Columns:
    """Memory of the device if there is one, otherwise resident memory of the process."""
    columns: Columns = defaultdict(list)
    for sample in (step.m for step in steps if step.m):
        time, allocated, reserved, resident = sample
        columns["kind"].append("sample")
        columns["name"].append("process" if allocated is None else "device")
        columns["time"].append(started + time)
        columns["allocated"].append(resident if allocated is None else allocated)
        columns["reserved"].append(reserved)
    return columns


def event_columns(started: int, steps: Iterable[LogStep]) -> Columns:
    columns: Columns = defaultdict(list)
    for track, name, start, length in _spans(steps):
        columns["track"].append(track)
        columns["name"].append(name)
        columns["category"].append(track)
        columns["start"].append(started + start)
        columns["duration"].append(length)
        columns["depth"].append(0)
    return columns


def _spans(steps: Iterable[LogStep]) -> Iterator[tuple[str, str, int, int]]:
    for step in steps:
        yield "step", f"step {step.step}", step.t, step.d
        for name, start, length in step.p:
            yield "phase", name, step.t + start, length
        for op, _, start, known, *_ in step.c:
            if known is not None:
                yield "communication", op, step.t + start, known
