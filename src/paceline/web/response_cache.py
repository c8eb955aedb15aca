"""Cache of responses of one run: valid until the run is read again, since its tables do not change in between."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

MOST_BYTES = 64 << 20
"""Of one run; the least recently used responses are dropped first."""
_LARGEST = MOST_BYTES // 8
_BYTES_PER_ROW = 1_000
"""Rough size of one row of a table page."""


class ResponseCache:
    """Least-recently-used cache, bounded by bytes."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> Any:
        """The cached response, or None."""
        with self._lock:
            if key not in self._responses:
                return None
            self._responses.move_to_end(key)
            return self._responses[key][1]

    def put(self, key: str, response: Any) -> None:
        size = len(key) + _size(response)
        if size > _LARGEST:
            return
        with self._lock:
            self._bytes += size - self._responses.pop(key, (0, None))[0]
            self._responses[key] = (size, response)
            while self._bytes > MOST_BYTES:
                self._bytes -= self._responses.popitem(last=False)[1][0]


def _size(response: Any) -> int:
    if isinstance(response, bytes):
        return len(response)
    return _BYTES_PER_ROW * (1 + len(getattr(response, "rows", ())))
