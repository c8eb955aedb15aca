"""One training step while it is recorded, and the two log lines it becomes.

The line of the detailed log (times in ns; "t" since the session began, the others since "t"):

    {"step": 12, "t": 61234567, "d": 5012345,
     "p": [["data_wait", 0, 120345], …],                                  phases: name, start, duration
     "c": [["all_reduce", "0@1b2c", 3456, 210345, 4096, 210345, null]],   collectives: op, group, start, duration,
                                                                          bytes, blocked, peer
     "m": [t, allocated, reserved, resident], "more": [dropped collectives, blocked time not in "c"]}

and one array for the summary: [step, t, d, blocked in collectives, data wait, bytes sent]. Events are written to both,
to the summary as [kind, step, text].
"""

from __future__ import annotations

from time import perf_counter_ns

MAX_PHASES = 256
MAX_COLLECTIVES = 2048
"""Per step, so that a step is bounded in memory; what exceeds them is counted, not kept."""
DATA_WAIT = "data_wait"
_DATA_WAIT = f'"{DATA_WAIT}"'


class CollectiveRecord:
    """One collective call of this rank, open until `end` is set."""

    __slots__ = ("blocked", "bytes", "end", "exact", "group", "op", "peer", "queued", "start")

    def __init__(
        self, op: str, group: str, size: int | None, peer: int | None = None, queued: bool = False, exact: bool = False
    ) -> None:
        self.op, self.group, self.bytes, self.peer = op, group, size, peer
        self.queued, self.exact = queued, exact
        """Whether the call only queues work for a device, and whether the recorder waits for that work."""
        self.blocked = 0
        """ns for which the calling thread was blocked."""
        self.end = 0
        """0: not known (yet)."""
        self.start = perf_counter_ns()

    def finish(self) -> None:
        """The call returned; the end of work that was only queued stays unknown."""
        end = perf_counter_ns()
        self.blocked = end - self.start
        if self.exact or not self.queued:
            self.end = end


class StepRecord:
    """The step in progress."""

    __slots__ = ("collectives", "dropped", "end", "extra_blocked", "memory", "number", "phases", "start")

    def __init__(self, number: int, start: int) -> None:
        self.number, self.start = number, start
        self.phases: list[tuple[str, int, int]] = []
        """(name as JSON, start, end)."""
        self.collectives: list[CollectiveRecord] = []
        self.end = self.dropped = self.extra_blocked = 0
        """`dropped` counts collectives; `extra_blocked` is blocked time (ns) of collectives that are not in the list."""
        self.memory: tuple[int, ...] | None = None

    def add_collective(self, collective: CollectiveRecord) -> None:
        if len(self.collectives) < MAX_COLLECTIVES:
            self.collectives.append(collective)
        else:
            self.dropped += 1

    def to_lines(self, origin: int) -> tuple[str, str]:
        """The detailed line and the summary line; formatted in the recorder's thread, not in the training thread."""
        start, end = self.start, self.end
        blocked = sent = waited = 0
        parts = [f'{{"step":{self.number},"t":{start - origin},"d":{end - start}']
        if self.phases:
            phases = []
            for name, entered, left in self.phases:
                begin = max(entered, start)  # entered in the step before: that part is not recorded
                phases.append(f"[{name},{begin - start},{left - begin}]")
                waited += left - begin if name == _DATA_WAIT else 0
            parts.append(f'"p":[{",".join(phases)}]')
        if self.collectives:
            formatted = []
            for collective in self.collectives:
                blocked += collective.blocked
                sent += collective.bytes or 0
                formatted.append(_format_collective(collective, start))
            parts.append(f'"c":[{",".join(formatted)}]')
        if self.memory:
            parts.append(f'"m":[{",".join(map(_number_or_null, self.memory))}]')
        if self.dropped or self.extra_blocked:
            parts.append(f'"more":[{self.dropped},{self.extra_blocked}]')
        blocked = min(blocked + self.extra_blocked, end - start)
        summary = f"[{self.number},{start - origin},{end - start},{blocked},{waited},{sent}]\n"
        return ",".join(parts) + "}\n", summary


def _format_collective(collective: CollectiveRecord, start: int) -> str:
    duration = collective.end - collective.start if collective.end else "null"
    size = "null" if collective.bytes is None else collective.bytes
    peer = "null" if collective.peer is None else collective.peer
    times = f"{collective.start - start},{duration},{size},{collective.blocked}"
    return f'["{collective.op}","{collective.group}",{times},{peer}]'


def _number_or_null(value: int) -> str:
    return str(value) if value >= 0 else "null"
