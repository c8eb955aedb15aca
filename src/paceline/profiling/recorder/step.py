"""One step while it is recorded, and the two lines it becomes.

The step's line, for the ring of the last steps (times in ns; "t" since the session began, the others since "t"):

    {"step": 12, "t": 61234567, "d": 5012345,
     "p": [["data_wait", 0, 120345], …],                                  phases: name, start, duration
     "c": [["all_reduce", "0@1b2c", 3456, 210345, 4096, 210345, null]],   collectives: see Talk
     "m": [t, allocated, reserved, resident], "more": [left out, their blocked time]}

and one array for the summary: [step, t, d, blocked in collectives, data wait, bytes sent]. Events are written to both,
to the summary as [kind, step, text].
"""

from __future__ import annotations

from time import perf_counter_ns

MOST_PHASES = 256
MOST_COLLECTIVES = 2048
"""Per step; what exceeds them is counted, not kept, so that a step is bounded in memory."""
DATA_WAIT = "data_wait"
_DATA_WAIT = f'"{DATA_WAIT}"'


class Talk:
    """One collective of this rank, open until `end` is set."""

    __slots__ = ("blocked", "bytes", "end", "exact", "group", "later", "op", "peer", "start")

    def __init__(
        self, op: str, group: str, size: int | None, peer: int | None = None, later: bool = False, exact: bool = False
    ) -> None:
        self.op, self.group, self.bytes, self.peer = op, group, size, peer
        self.later, self.exact = later, exact
        """Whether the call only queues work for a device, and whether that was waited for all the same."""
        self.blocked = 0
        """ns for which the calling thread stood still."""
        self.end = 0
        """0: not known (yet)."""
        self.start = perf_counter_ns()

    def finish(self) -> None:
        """The call returned; of work that is only queued then nobody knows the end."""
        end = perf_counter_ns()
        self.blocked = end - self.start
        if self.exact or not self.later:
            self.end = end


class Step:
    """The step that is going on."""

    __slots__ = ("blocked_more", "end", "left_out", "memory", "number", "phases", "start", "talks")

    def __init__(self, number: int, start: int) -> None:
        self.number, self.start = number, start
        self.phases: list[tuple[str, int, int]] = []
        """(name as JSON, start, end)."""
        self.talks: list[Talk] = []
        self.end = self.left_out = self.blocked_more = 0
        self.memory: tuple[int, ...] | None = None

    def take(self, talk: Talk) -> None:
        """A collective begins."""
        if len(self.talks) < MOST_COLLECTIVES:
            self.talks.append(talk)
        else:
            self.left_out += 1

    def lines(self, origin: int) -> tuple[str, str]:
        """The line for the ring and the line for the summary; made by the recorder's thread, not by the training's."""
        start, end, talks = self.start, self.end, self.talks
        blocked = sent = waited = 0
        parts = [f'{{"step":{self.number},"t":{start - origin},"d":{end - start}']
        if self.phases:
            phases = []
            for name, entered, done in self.phases:
                began = max(entered, start)  # entered in the step before: that part is lost
                phases.append(f"[{name},{began - start},{done - began}]")
                waited += done - began if name == _DATA_WAIT else 0
            parts.append(f'"p":[{",".join(phases)}]')
        if talks:
            spelled = []
            for talk in talks:
                blocked += talk.blocked
                sent += talk.bytes or 0
                spelled.append(_spelled(talk, start))
            parts.append(f'"c":[{",".join(spelled)}]')
        if self.memory:
            parts.append(f'"m":[{",".join(map(_number, self.memory))}]')
        if self.left_out or self.blocked_more:
            parts.append(f'"more":[{self.left_out},{self.blocked_more}]')
        blocked = min(blocked + self.blocked_more, end - start)
        summary = f"[{self.number},{start - origin},{end - start},{blocked},{waited},{sent}]\n"
        return ",".join(parts) + "}\n", summary


def _spelled(talk: Talk, start: int) -> str:
    length = talk.end - talk.start if talk.end else "null"
    size = "null" if talk.bytes is None else talk.bytes
    peer = "null" if talk.peer is None else talk.peer
    return f'["{talk.op}","{talk.group}",{talk.start - start},{length},{size},{talk.blocked},{peer}]'


def _number(value: int) -> str:
    return str(value) if value >= 0 else "null"
