"""A thread for slow work during training; starts with the first task."""

from __future__ import annotations

import threading
from typing import Callable

Task = Callable[[], None]


class BackgroundThread:
    """Runs at most one task at a time; the caller decides what to drop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: Task | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._task is not None

    def start(self, task: Task) -> None:
        """Start a task; it must report its own failures."""
        with self._changed:
            assert self._task is None
            self._task = task
            if self._thread is None:
                # A daemon, so that a process can exit when a deadline gave up on the task.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the task is done; False if it was not done in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._task is None, seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and not self.busy:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._task is not None or self._closed)
                task = self._task
            if task is None:
                return
            try:
                task()
            finally:
                with self._changed:
                    self._task = None
                    self._changed.notify_all()
