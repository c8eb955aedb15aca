"""Metadata that users add to the recordings of a Profiler: text and JSON by key."""

from __future__ import annotations

import json
from sys import getsizeof

from paceline.profiling.warning import warn

MAX_BYTES = 100 << 20


class Metadata:
    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._size = 0

    def values(self) -> dict[str, object]:
        return dict(self._values)

    def add(self, key: str, value: str) -> None:
        if self._is_valid(key, value):
            self._values[key] = value

    def add_json(self, key: str, value: str) -> None:
        if not self._is_valid(key, value):
            return
        try:
            self._values[key] = json.loads(value)
        except ValueError:
            warn("The metadata value must be json format string. Skip this metadata")

    def _is_valid(self, key: object, value: object) -> bool:
        if not (isinstance(key, str) and isinstance(value, str)):
            warn("The key and value of metadata must be string. Skip this metadata.")
            return False
        if self._size + getsizeof(key) + getsizeof(value) >= MAX_BYTES:
            warn("Too many metadata added. Skip this metadata")
            return False
        if key in self._values:
            warn(f"{key} is already saved as metadata, override it.")
        self._size += getsizeof(key) + getsizeof(value)
        return True
