"""Named stretches of a step: `with recorder.phase("forward")`, and the time a loop waits for its data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from paceline.profiling.recorder.step import DATA_WAIT

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

Batch = TypeVar("Batch")
_LONGEST = 100


class Phase:
    """Enter and leave it as often as wanted; one object per name is kept, because making them would cost more."""

    __slots__ = ("_quoted", "_recorder", "_starts", "_waits", "name")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder, self.name = recorder, name
        self._quoted = json.dumps(name[:_LONGEST])
        self._waits = name == DATA_WAIT
        self._starts: list[int] = []

    def __enter__(self) -> Phase:
        self._recorder.within.append(self.name)
        self._starts.append(perf_counter_ns())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = perf_counter_ns()
        start, step = self._starts.pop(), self._recorder.current
        if self._recorder.within:
            self._recorder.within.pop()
        step.phase(self._quoted, max(start, step.start), end)
        if self._waits:
            step.waited += end - max(start, step.start)


class Waiting(Generic[Batch]):
    """An iterable whose every `next` is recorded as data_wait; len() and iter() are those of what it wraps."""

    def __init__(self, source: Iterable[Batch], phase: Phase) -> None:
        self._source, self._phase = source, phase

    def __iter__(self) -> Iterator[Batch]:
        with self._phase:
            batches = iter(self._source)
        while True:
            try:
                with self._phase:
                    batch = next(batches)
            except StopIteration:
                return
            yield batch

    def __len__(self) -> int:
        if isinstance(self._source, Sized):
            return len(self._source)
        raise TypeError(f"{type(self._source).__name__} has no length")
