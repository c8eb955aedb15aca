"""A small cluster made by hand: ranks work, meet in collectives and end their steps, and the run records exactly that.

cluster = SmallCluster(2)
cluster.work({0: 100, 1: 120})          # ms of each rank
cluster.meet([0, 1], transfer=10)       # both leave 10 ms after the later one arrived
cluster.end_step()
context = cluster.context()             # step time 130 ms, self time 100 and 120 ms
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.hardware import Hardware
from support.fake_run import FakeRun

MS = 1_000_000

Row = dict[str, Any]


class SmallCluster:
    """Ranks 0 … n-1 whose clocks begin at 0; times are given in ms."""

    def __init__(self, ranks: int, **columns: Sequence[object]) -> None:
        """`columns` are those of the table ranks, one value per rank: host=["a", "a", "b", "b"]."""
        self.ranks = [
            {"rank": rank, "format": "made by hand", **{name: values[rank] for name, values in columns.items()}}
            for rank in range(ranks)
        ]
        self.steps: list[Row] = []
        self.collectives: list[Row] = []
        self.tables: dict[str, list[Row]] = {}
        self._clock = [0] * ranks
        self._begin = [0] * ranks
        self._exposed = [0] * ranks
        self._sequences: Counter[tuple[object, ...]] = Counter()
        self._step = 1

    def work(self, times: Mapping[int, float] | Sequence[float]) -> None:
        """Each rank's own work."""
        for rank, time in times.items() if isinstance(times, Mapping) else enumerate(times):
            self._clock[rank] += round(time * MS)

    def meet(
        self, ranks: Sequence[int], transfer: float, *, group: str | None = "world", op: str = "all_reduce", **more: Any
    ) -> None:
        """A collective: its members leave `transfer` after the last of them arrived."""
        end = max(self._clock[rank] for rank in ranks) + round(transfer * MS)
        for rank in ranks:
            self._record(rank, end, group=group, op=op, sequence=self._sequences[group, op], **more)
        self._sequences[group, op] += 1

    def send(self, source: int, target: int, transfer: float, **more: Any) -> None:
        """A message; both sides wait for each other."""
        pair = f"p2p-{min(source, target)}-{max(source, target)}"
        end = max(self._clock[source], self._clock[target]) + round(transfer * MS)
        number = self._sequences[source, target]
        self._record(source, end, group=pair, op="send", sequence=number, peer=target, **more)
        self._record(target, end, group=pair, op="receive", sequence=number, peer=source, **more)
        self._sequences[source, target] += 1

    def _record(self, rank: int, end: int, **columns: Any) -> None:
        start = self._clock[rank]
        name = f"{columns['op']}_{columns['sequence']}"
        times = {"start": start, "duration": end - start}
        self.collectives.append({"rank": rank, "step": self._step, "name": name, **columns, **times})
        self._exposed[rank] += end - start
        self._clock[rank] = end

    def issue(self, ranks: Sequence[int], transfer: float, *, group: str, op: str = "all_reduce", **more: Any) -> None:
        """A collective on a side stream: its members go on with their work at once, and it is not exposed."""
        begin = max(self._clock[rank] for rank in ranks)
        for rank in ranks:
            times = {"start": self._clock[rank], "duration": begin + round(transfer * MS) - self._clock[rank]}
            number = self._sequences[group, op]
            names = {"group": group, "op": op, "sequence": number, "name": f"{op}_{number}"}
            self.collectives.append({"rank": rank, "step": self._step, **names, **more, **times})
        self._sequences[group, op] += 1

    def end_step(self, **columns: float | Sequence[float] | None) -> None:
        """End the step on every rank; `columns` of the table steps in ms, for all ranks or one value per rank."""
        for rank, (begin, end) in enumerate(zip(self._begin, self._clock, strict=True)):
            own = {name: value[rank] if isinstance(value, Sequence) else value for name, value in columns.items()}
            recorded = {name: None if value is None else round(value * MS) for name, value in own.items()}
            times = {"start": begin, "end": end, "duration": end - begin, "exposed": self._exposed[rank]}
            self.steps.append({"rank": rank, "step": self._step, **times, **recorded})
        self._begin, self._exposed = list(self._clock), [0] * len(self._clock)
        self._step += 1

    def run(self, **tables: list[Row]) -> FakeRun:
        run = FakeRun(ranks=self.ranks, steps=self.steps, collectives=self.collectives, **self.tables, **tables)
        run.source, run.warnings = "made/by/hand", ()
        return run

    def context(
        self, *, steps: tuple[int, ...] | None = None, hardware: Hardware | None = None, **tables: list[Row]
    ) -> DiagnosisContext:
        return DiagnosisContext(self.run(**tables), steps, hardware=hardware)


def steady_cluster(
    self_times: Sequence[Sequence[float]],
    *,
    transfer: float = 10,
    columns: Mapping[str, Any] | None = None,
    **ranks: Any,
) -> SmallCluster:
    """Ranks × steps of self time in ms; all ranks meet at the end of each step, which lasts the longest + `transfer`.

    `columns` are those of the table steps in ms, for all ranks or one value per rank; `ranks` those of the table ranks.
    """
    cluster = SmallCluster(len(self_times), **ranks)
    for times in zip(*self_times, strict=True):
        cluster.work(times)
        cluster.meet(range(len(self_times)), transfer)
        cluster.end_step(**(columns or {}))
    return cluster


def slower(ranks: int, steps: int, times: Mapping[int, float], *, usual: float = 100) -> list[list[float]]:
    """Self times of a cluster in which all but these ranks need `usual` ms in every step."""
    return [[times.get(rank, usual)] * steps for rank in range(ranks)]
