"""Back-off with jitter, and fewer requests at a time while a server asks for fewer."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from paceline.storage.store import ThrottledError, TransientError

T = TypeVar("T")


@dataclass(frozen=True)
class Backoff:
    """Wait random(0, min(most, first · 2ⁿ)) seconds before try n (full jitter: a thousand clients do not come back
    at once), and give up when failing has lasted for `patience` seconds."""

    first: float = 0.25
    most: float = 20.0
    patience: float = 300.0

    def wait(self, attempt: int, throttled: bool) -> float:
        ceiling = min(self.most, self.first * 2 ** min(attempt, 20) * (4 if throttled else 1))
        # Never near zero when throttled: the server asked for a pause, not for luck.
        return random.uniform(ceiling / 4 if throttled else 0, ceiling)


class Gate:
    """At most `limit` requests at a time: halved when throttled, one more after a round of successes."""

    def __init__(self, limit: int) -> None:
        self._most = float(limit)
        self._limit = float(limit)
        self._inside = 0
        self._free = threading.Condition()

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._free:
            self._free.wait_for(lambda: self._inside < max(1, int(self._limit)))
            self._inside += 1
        try:
            yield
        finally:
            with self._free:
                self._inside -= 1
                self._free.notify()

    def calmed(self) -> None:
        with self._free:
            if self._limit < self._most:
                self._limit = min(self._most, self._limit + 1 / self._limit)
                self._free.notify()

    def throttled(self) -> None:
        with self._free:
            self._limit = max(1.0, self._limit / 2)


class Stopped(Exception):
    """The transfer was called off while this piece waited."""


class Retry:
    """Runs calls through a gate, again while they fail for reasons that pass."""

    def __init__(self, backoff: Backoff, gate: Gate, stop: threading.Event) -> None:
        self._backoff, self._gate, self.stop = backoff, gate, stop
        self.retries = 0

    def __call__(self, call: Callable[[], T]) -> T:
        started: float | None = None
        attempt = 0
        while True:
            if self.stop.is_set():
                raise Stopped
            try:
                with self._gate.entered():
                    result = call()
            except TransientError as error:
                throttled = isinstance(error, ThrottledError)
                if throttled:
                    self._gate.throttled()
                started = started or time.monotonic()
                pause = self._backoff.wait(attempt, throttled)
                if time.monotonic() - started + pause > self._backoff.patience:
                    raise
                attempt += 1
                self.retries += 1
                self.stop.wait(pause)
            else:
                self._gate.calmed()
                return result


def patiently(backoff: Backoff, call: Callable[[], T]) -> T:
    """One call with back-off, outside of any pool."""
    return Retry(backoff, Gate(1), threading.Event())(call)
