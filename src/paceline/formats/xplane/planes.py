"""Planes, lines and events of an XSpace message (tsl/profiler/protobuf/xplane.proto), without generated code.

A plane is a device or a host, a line is a stream or a thread; times are a line's nanoseconds and an event's picoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.core.message import message as sentence
from paceline.core.protobuf import fields, integer, message, text

MAX_BYTES = 4 << 30
_PLANES, _HOSTS = 1, 4
_NAME, _LINES, _EVENT_NAMES, _STAT_NAMES = 2, 3, 4, 5
_LINE_NAME, _LINE_TIME, _EVENTS = 2, 3, 4
_EVENT_ID, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4
_STAT_ID, _UNSIGNED, _SIGNED = 1, 3, 4
_CORRELATION = "correlation_id"


@dataclass(frozen=True)
class Event:
    line: str
    name: str
    start: int
    """ns"""
    duration: int
    correlation: int


@dataclass
class Plane:
    name: str = ""
    _lines: list[memoryview] = field(default_factory=list)
    _event_names: dict[int, str] = field(default_factory=dict)
    _stat_names: dict[int, str] = field(default_factory=dict)

    def events(self) -> Iterator[Event]:
        for line in self._lines:
            yield from self._of_line(line)

    def _of_line(self, line: memoryview) -> Iterator[Event]:
        name, begin, events = "", 0, []
        for number, value in fields(line):
            if number == _LINE_NAME:
                name = text(value)
            elif number == _LINE_TIME:
                begin = integer(value)
            elif number == _EVENTS:
                events.append(message(value))
        for event in events:
            kind = offset = duration = correlation = 0
            for number, value in fields(event):
                if number == _EVENT_ID:
                    kind = integer(value)
                elif number == _OFFSET:
                    offset = integer(value)
                elif number == _DURATION:
                    duration = integer(value)
                elif number == _STATS:
                    correlation = self._correlation(message(value)) or correlation
            yield Event(name, self._event_names.get(kind, "?"), begin + offset // 1000, duration // 1000, correlation)

    def _correlation(self, stat: memoryview) -> int:
        kind = found = 0
        for number, value in fields(stat):
            if number == _STAT_ID:
                kind = integer(value)
            elif number in (_UNSIGNED, _SIGNED):
                found = integer(value)
        return found if self._stat_names.get(kind) == _CORRELATION else 0


def read_planes(path: Path) -> tuple[list[Plane], str | None]:
    """All planes of a file, and the name of its host."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(sentence("larger_refused", size=f"{MAX_BYTES >> 30} GiB"), file=path)
    planes, host = [], None
    try:
        for number, value in fields(memoryview(path.read_bytes())):
            if number == _PLANES:
                planes.append(_plane(message(value)))
            elif number == _HOSTS:
                host = host or text(value)
    except FormatError as error:
        raise FormatError(error.said, file=path) from error
    return planes, host


def _plane(data: memoryview) -> Plane:
    plane = Plane()
    for number, value in fields(data):
        if number == _NAME:
            plane.name = text(value)
        elif number == _LINES:
            plane._lines.append(message(value))
        elif number in (_EVENT_NAMES, _STAT_NAMES):
            names = plane._event_names if number == _EVENT_NAMES else plane._stat_names
            key, name = _entry(message(value))
            names[key] = name
    return plane


def _entry(data: memoryview) -> tuple[int, str]:
    """Of a map from an id to a message with a name."""
    key, name = 0, ""
    for number, value in fields(data):
        if number == 1:
            key = integer(value)
        elif number == 2:
            name = next((text(each) for place, each in fields(message(value)) if place == 2), "")
    return key, name
