"""One thread that does slow work beside training; started with the first work, asked at the end whether it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class Background:
    """Holds at most one work at a time: whoever has more decides what to drop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: Work | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = False

    @property
    def busy(self) -> bool:
        return self._work is not None

    def start(self, work: Work) -> None:
        """The work tells its failures itself: nobody listens here."""
        with self._changed:
            assert self._work is None
            self._work = work
            if self._thread is None:
                # A daemon: a process that is told to end does not wait for what a deadline gave up.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Until the work is done; False when it was not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._work is None, seconds)

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None and not self.busy:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work is not None or self._over)
                work = self._work
            if work is None:
                return
            try:
                work()
            finally:
                with self._changed:
                    self._work = None
                    self._changed.notify_all()
