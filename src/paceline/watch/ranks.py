"""State of each rank of a running job: its last steps and events, and the beginning of its detailed log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec

from paceline.core.collective_names import group_kind
from paceline.formats.recorder.reader import SCHEMA, LogHead
from paceline.formats.recorder.tables import SessionLog
from paceline.metrics.peers import program

KEPT_STEPS = 1024
KEPT_EVENTS = 20
_POINT_TO_POINT = ("send", "receive", "send_receive")


class FinishedStep(NamedTuple):
    """A line of the summary; times in ns."""

    step: int
    start: int
    duration: int
    blocked: int
    data_wait: int
    bytes: int

    @property
    def self_time(self) -> int:
        """duration - exposed communication (metrics/self_time): the recorder sees as exposed what blocks the host."""
        return self.duration - self.blocked


class Event(NamedTuple):
    kind: str
    step: int
    text: str


_HEAD = msgspec.json.Decoder(LogHead)


@dataclass
class LiveRank:
    """One session of a rank's recorder."""

    head: LogHead
    directory: str
    from_start: bool = True
    """Whether the summary was read from its first step on."""
    steps: deque[FinishedStep] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    details: SessionLog = field(default_factory=SessionLog)
    """The beginning of the detailed log: groups, collectives of the first steps, number of warm-up steps."""
    last_write: float = 0.0
    """In seconds since 1970."""
    _count: int = 0

    @property
    def rank(self) -> int:
        return self.head.rank

    @property
    def job(self) -> tuple[str, int]:
        return self.head.job, self.head.world_size

    @property
    def is_closed(self) -> bool:
        return bool(self.events) and self.events[-1].kind == "closed"

    @property
    def measured_steps(self) -> list[FinishedStep]:
        """Without the warm-up, by the same rule as the reader of these logs (formats/recorder)."""
        forgotten = self._count - len(self.steps)
        warm_up = max(0, self.details.warm_up - forgotten) if self.from_start else 0
        return list(self.steps)[warm_up:] if len(self.steps) > 2 * warm_up else list(self.steps)

    @cached_property
    def collectives(self) -> Counter[str]:
        """How many of each kind are in the first detailed steps."""
        return Counter(collective[0] for step in self.details.steps_after_warm_up() for collective in step.c)

    @property
    def program(self) -> Hashable | None:
        """What the rank runs (metrics/peers); None: not known yet."""
        steps = len(self.details.steps)
        return program(self.collectives, len(self.details.steps_after_warm_up())) if steps else None

    @property
    def has_point_to_point(self) -> bool:
        return any(op in self.collectives for op in _POINT_TO_POINT)

    def groups_of_kind(self, kind: str) -> list[tuple[int, ...]]:
        """Members of the communication groups of this kind ("dp", "pp", …) that the rank has used."""
        groups = self.details.groups.values()
        return [tuple(group.ranks) for group in groups if group_kind(group.called.removeprefix("mesh_")) == kind]

    def add_summary_line(self, line: bytes) -> None:
        """Lines that are not records (a head, an incomplete line) are skipped."""
        if not line.startswith(b"["):
            return
        try:
            values = msgspec.json.decode(line, type=list[int | str])
        except msgspec.DecodeError:
            return
        if len(values) == 6 and all(isinstance(value, int) for value in values):
            self.steps.append(FinishedStep(*map(int, values)))
            self._count += 1
        elif len(values) == 3 and isinstance(values[1], int):
            self.events.append(Event(str(values[0]), values[1], str(values[2])))

    def add_detail_line(self, line: bytes) -> None:
        self.__dict__.pop("collectives", None)  # computed again when asked for
        try:
            self.details.add_line(line)
        except (msgspec.DecodeError, RecursionError):
            pass  # an incomplete line


def parse_head(line: bytes) -> LogHead | None:
    try:
        head = _HEAD.decode(line)
    except msgspec.DecodeError:
        return None
    return head if head.schema == SCHEMA else None
