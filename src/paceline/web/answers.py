"""Answers that were given before: what an open run says does not change until it is read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

MOST_BYTES = 64 << 20
"""Of one run; what nobody asked for longest is forgotten first."""
_LARGEST = MOST_BYTES // 8
_BYTES_A_ROW = 1_000
"""Of a page of a table, roughly."""


class Answers:
    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, question: str) -> Any:
        """What was answered, or None."""
        with self._lock:
            if question not in self._known:
                return None
            self._known.move_to_end(question)
            return self._known[question][1]

    def put(self, question: str, answer: Any) -> None:
        size = len(question) + _size(answer)
        if size > _LARGEST:
            return
        with self._lock:
            self._bytes += size - self._known.pop(question, (0, None))[0]
            self._known[question] = (size, answer)
            while self._bytes > MOST_BYTES:
                self._bytes -= self._known.popitem(last=False)[1][0]


def _size(answer: Any) -> int:
    if isinstance(answer, bytes):
        return len(answer)
    return _BYTES_A_ROW * (1 + len(getattr(answer, "rows", ())))
