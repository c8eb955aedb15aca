"""Retries: exponential back-off with full jitter, and a concurrency limit that shrinks while a server throttles."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from paceline.core.waiting import FIRST, note_wait
from paceline.storage.store_errors import ThrottledError, TransientError

T = TypeVar("T")


@dataclass(frozen=True)
class Backoff:
    """Wait random(0, min(longest_wait, first_wait · 2ⁿ)) seconds before attempt n (full jitter, so that a thousand
    clients do not return at once), and give up after `patience` seconds without success."""

    first_wait: float = 0.25
    longest_wait: float = 20.0
    patience: float = 300.0

    def wait(self, attempt: int, throttled: bool) -> float:
        ceiling = min(self.longest_wait, self.first_wait * 2 ** min(attempt, 20) * (4 if throttled else 1))
        # Never near zero when throttled: the server asked for a pause.
        return random.uniform(ceiling / 4 if throttled else 0, ceiling)


class ConcurrencyLimit:
    """At most `limit` requests at a time: halved when throttled, raised by one after a round of successes."""

    def __init__(self, limit: int) -> None:
        self._configured = float(limit)
        self._limit = float(limit)
        self._active = 0
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._active < max(1, int(self._limit)))
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify()

    def on_success(self) -> None:
        with self._changed:
            if self._limit < self._configured:
                self._limit = min(self._configured, self._limit + 1 / self._limit)
                self._changed.notify()

    def on_throttled(self) -> None:
        with self._changed:
            self._limit = max(1.0, self._limit / 2)


class TransferStopped(Exception):
    """The transfer was stopped before this call could succeed."""


class Retrier:
    """Runs calls within the concurrency limit, and retries them while they raise TransientError."""

    def __init__(self, backoff: Backoff, limit: ConcurrencyLimit, stop: threading.Event) -> None:
        self._backoff, self._limit, self.stop = backoff, limit, stop
        self.retries = 0

    def __call__(self, call: Callable[[], T]) -> T:
        first_failure: float | None = None
        attempt = 0
        while True:
            if self.stop.is_set():
                raise TransferStopped
            try:
                with self._limit.slot():
                    result = call()
            except TransientError as error:
                throttled = isinstance(error, ThrottledError)
                if throttled:
                    self._limit.on_throttled()
                first_failure = first_failure or time.monotonic()
                pause = self._backoff.wait(attempt, throttled)
                failing = time.monotonic() - first_failure
                if failing + pause > self._backoff.patience:
                    raise
                if failing + pause > FIRST:
                    note_wait(f"{error}; retrying for up to {self._backoff.patience:.0f} s")
                attempt += 1
                self.retries += 1
                self.stop.wait(pause)
            else:
                self._limit.on_success()
                return result


def retry_call(backoff: Backoff, call: Callable[[], T]) -> T:
    """One call with back-off, outside of a transfer."""
    return Retrier(backoff, ConcurrencyLimit(1), threading.Event())(call)
