"""Pickle with paths stored relative to the source's root, so that tasks can be run on machines with another root."""

from __future__ import annotations

import io
import pickle
from pathlib import Path, PurePath
from typing import Any


class _RelativePathPickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, root: Path) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._root = root
        self.relative_paths: set[str] = set()

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, PurePath) or not obj.is_relative_to(self._root):
            return None
        relative = obj.relative_to(self._root).as_posix()
        self.relative_paths.add(relative)
        return relative


class _RelativePathUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, root: Path) -> None:
        super().__init__(io.BytesIO(data))
        self._root = root

    def persistent_load(self, pid: str) -> Path:
        return self._root / pid


def dumps(value: object, root: Path) -> tuple[bytes, frozenset[str]]:
    """The pickled object, and all paths below the root that it holds, relative to the root."""
    out = io.BytesIO()
    pickler = _RelativePathPickler(out, root)
    pickler.dump(value)
    return out.getvalue(), frozenset(pickler.relative_paths)


def loads(data: bytes, root: Path) -> Any:
    """Only for what `dumps` made in a process of ours: unpickling runs code."""
    return _RelativePathUnpickler(data, root).load()
