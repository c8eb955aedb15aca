"""Queue signals, so that the launcher handles them when it can."""

from __future__ import annotations

import signal
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class SignalQueue:
    """Context manager that queues signals; does nothing outside the main thread, where Python allows no handlers."""

    def __init__(self) -> None:
        self._seen: deque[int] = deque()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalQueue:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._append) for number in FORWARDED}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take(self) -> int:
        """The next one, or 0."""
        return self._seen.popleft() if self._seen else 0

    def _append(self, number: int, frame: FrameType | None) -> None:
        self._seen.append(number)
