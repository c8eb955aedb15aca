"""Named stretches of a step: `with recorder.phase("forward")`, and the time a loop waits for its data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from paceline.profiling.recorder.step import MOST_PHASES

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

Batch = TypeVar("Batch")
_LONGEST = 100


class Phase:
    """Enter and leave it as often as wanted; one object per name is kept, because making them would cost more."""

    __slots__ = ("_quoted", "_recorder", "name", "starts")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder, self.name = recorder, name
        self._quoted = json.dumps(name[:_LONGEST])
        self.starts: list[int] = []
        """When it was entered; empty: it is not open."""

    def __enter__(self) -> Phase:
        self.starts.append(perf_counter_ns())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        phases = self._recorder.current.phases
        if len(phases) < MOST_PHASES:
            phases.append((self._quoted, self.starts.pop(), perf_counter_ns()))
        else:
            self.starts.pop()


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
