"""Named phases of a step: `with recorder.phase("forward")`, and the time a loop waits for its data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from time import perf_counter_ns
from types import TracebackType
from typing import Generic, TypeVar

from paceline.recorder.recording_state import RecordingState
from paceline.recorder.step import MAX_PHASES

Batch = TypeVar("Batch")
_MAX_NAME_LENGTH = 100


class Phase:
    """A context manager that can be entered any number of times; one object per name is kept, because creating one
    costs more than entering it."""

    __slots__ = ("_quoted", "_recorder", "name", "starts")

    def __init__(self, recorder: RecordingState, name: str) -> None:
        self._recorder, self.name = recorder, name
        self._quoted = json.dumps(name[:_MAX_NAME_LENGTH])
        self.starts: list[int] = []
        """When it was entered; empty: it is not open."""

    def __enter__(self) -> Phase:
        self.starts.append(perf_counter_ns())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        phases = self._recorder.current.phases
        if len(phases) < MAX_PHASES:
            phases.append((self._quoted, self.starts.pop(), perf_counter_ns()))
        else:
            self.starts.pop()


class TimedIterable(Generic[Batch]):
    """Records every `next` of an iterable as a phase (data_wait); len() and iter() are those of the iterable."""

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
