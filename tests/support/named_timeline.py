"""The timeline of ranks whose events have names, for tests that work it out on paper."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from paceline.metrics.timeline.rank_timeline import Timeline, read_timeline
from support.comm_tables import collective
from support.fake_run import FakeRun

MS = 1_000_000
Span = tuple[str, float, float]
"""Group, start and end in ms; groups whose names begin with dp sum gradients, others gather."""
BEGIN = "begin"
"""What an event follows that nothing precedes."""


@dataclass(frozen=True)
class NamedTimeline:
    """Columns of a Timeline by the names of events, the ends of steps being end0, end1, …; ms."""

    line: Timeline
    names: dict[tuple[int, str, int, int], str]

    def column(self, attribute: str, rank: int) -> dict[str, Any]:
        values = getattr(self.line, attribute)
        return {self._name(row): self._shown(attribute, values[row]) for row in self._rows(rank)}

    def self_time(self) -> list[list[float]]:
        return [[float(value) / MS for value in row] for row in self.line.self_time()]

    def _rows(self, rank: int) -> list[int]:
        events = self.line.events
        return [row for row in range(len(events.rank)) if events.ranks[events.rank[row]] == rank]

    def _name(self, row: int) -> str:
        events = self.line.events
        if self.line.is_end[row]:
            return f"end{self.line.step[row]}"
        rank = int(events.ranks[events.rank[row]])
        return self.names[rank, str(events.group_key[row]), int(events.start[row]), int(events.end[row])]

    def _shown(self, attribute: str, value: Any) -> Any:
        if attribute in ("anchor", "after"):
            return self._name(int(value)) if value >= 0 else BEGIN if attribute == "anchor" else None
        if attribute in ("work", "lag", "overlap", "self_time_until"):
            return float(value) / MS
        return value.item()


def named_timeline(
    *ranks: dict[str, Span],
    ends: tuple[float, ...] = (100,),
    ops: dict[str, str] | None = None,
    kernels: list[list[tuple[float, float]]] | None = None,
    **recorded: list[list[float | None]],
) -> NamedTimeline:
    """Steps end at `ends` on all ranks; an event belongs to the step it starts in; ms.

    `kernels` are those of each rank, `recorded` columns of `steps`.
    """
    names, rows = {}, []
    for rank, events in enumerate(ranks):
        numbers: Counter[tuple[str, int]] = Counter()
        for name, (group, start, end) in events.items():
            step = sum(start >= bound for bound in ends)
            op = (ops or {}).get(name) or ("all_reduce" if group.startswith("dp") else "all_gather")
            rows.append(
                collective(
                    rank,
                    round(start * MS),
                    round(end * MS),
                    step=step,
                    group=group,
                    op=op,
                    sequence=numbers[group, step],
                )
            )
            names[rank, group, round(start * MS), round(end * MS)] = name
            numbers[group, step] += 1
    begins = (0.0, *ends)
    steps = [
        {
            "rank": rank,
            "step": step,
            "start": round(begins[step] * MS),
            "end": round(end * MS),
            "duration": round((end - begins[step]) * MS),
            **{name: _ns(values[rank][step]) for name, values in recorded.items()},
        }
        for rank in range(len(ranks))
        for step, end in enumerate(ends)
    ]
    computing = [
        {"rank": rank, "start": round(start * MS), "duration": round((end - start) * MS), "core": "GPU"}
        for rank, spans in enumerate(kernels or [])
        for start, end in spans
    ]
    return NamedTimeline(read_timeline(FakeRun(collectives=rows, steps=steps, kernels=computing)), names)


def _ns(value: float | None) -> int | None:
    return None if value is None else round(value * MS)
