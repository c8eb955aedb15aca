"""Objects that travel between machines with their paths: below the source's root, a path is only its tail."""

from __future__ import annotations

import io
import pickle
from pathlib import Path, PurePath
from typing import Any


class _Freezer(pickle.Pickler):
    def __init__(self, out: io.BytesIO, root: Path) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._root = root
        self.tails: set[str] = set()

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, PurePath) or not obj.is_relative_to(self._root):
            return None
        tail = obj.relative_to(self._root).as_posix()
        self.tails.add(tail)
        return tail


class _Thawer(pickle.Unpickler):
    def __init__(self, data: bytes, root: Path) -> None:
        super().__init__(io.BytesIO(data))
        self._root = root

    def persistent_load(self, pid: str) -> Path:
        return self._root / pid


def freeze(value: object, root: Path) -> tuple[bytes, frozenset[str]]:
    """The object as bytes, and the tails of all paths below the root that it holds."""
    out = io.BytesIO()
    freezer = _Freezer(out, root)
    freezer.dump(value)
    return out.getvalue(), frozenset(freezer.tails)


def thaw(data: bytes, root: Path) -> Any:
    """Only for what `freeze` made in a process of ours: unpickling runs code."""
    return _Thawer(data, root).load()
