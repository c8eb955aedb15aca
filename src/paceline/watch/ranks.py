"""What is known of each rank while it trains: the last steps of its summary, its peers, when it last said something."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from paceline.formats.collective_names import group_kind
from paceline.formats.light import SCHEMA, Head
from paceline.formats.light_tables import Members

KEPT_STEPS = 1024
KEPT_EVENTS = 20


class Finished(NamedTuple):
    """A step that ended; times in ns."""

    step: int
    start: int
    duration: int
    blocked: int
    data_wait: int
    bytes: int

    @property
    def own(self) -> int:
        """What the rank did itself: everything but standing still in collectives."""
        return self.duration - self.blocked


class Event(NamedTuple):
    kind: str
    step: int
    text: str


class _Groups(msgspec.Struct):
    groups: dict[str, Members] = {}
    group: str | None = None
    ranks: list[int] = []
    called: str = ""


_HEAD = msgspec.json.Decoder(Head)
_GROUPS = msgspec.json.Decoder(_Groups)


@dataclass
class RankState:
    head: Head
    directory: str
    steps: deque[Finished] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    peers: tuple[int, ...] | None = None
    """Members of its data-parallel group, where it has one that says so."""
    heard: float = 0.0
    """When it last wrote, in seconds since 1970."""

    @property
    def rank(self) -> int:
        return self.head.rank

    @property
    def job(self) -> tuple[str, int]:
        return self.head.job, self.head.world_size

    @property
    def is_closed(self) -> bool:
        return bool(self.events) and self.events[-1].kind == "closed"

    def take(self, line: bytes) -> None:
        """A line of the summary; what is no record (a head, a torn line) is passed over."""
        if not line.startswith(b"["):
            return
        try:
            values = msgspec.json.decode(line, type=list[int | str])
        except msgspec.DecodeError:
            return
        if len(values) == 6 and all(isinstance(value, int) for value in values):
            self.steps.append(Finished(*map(int, values)))
        elif len(values) == 3 and isinstance(values[1], int):
            self.events.append(Event(str(values[0]), values[1], str(values[2])))

    def take_groups(self, line: bytes) -> None:
        """A line of the detailed log that may name groups."""
        try:
            found = _GROUPS.decode(line)
        except msgspec.DecodeError:
            return
        groups = [*found.groups.values(), *([Members(found.ranks, found.called)] if found.group else [])]
        for group in groups:
            if group_kind(group.called.removeprefix("mesh_")) == "dp" and len(group.ranks) > 1:
                self.peers = tuple(sorted(group.ranks))


def head_of(line: bytes) -> Head | None:
    try:
        head = _HEAD.decode(line)
    except msgspec.DecodeError:
        return None
    return head if head.schema == SCHEMA else None
