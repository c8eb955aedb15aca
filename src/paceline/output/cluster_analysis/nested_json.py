"""Nested JSON objects written as their entries come, so that memory does not grow with the file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO


def write_nested(path: Path, entries: Iterable[tuple[tuple[str, ...], str]]) -> int:
    """Write path → JSON text as nested objects; entries of one parent must come one after the other."""
    count = 0
    with path.open("w", encoding="utf-8") as out:
        before: tuple[str, ...] = ()
        for keys, value in entries:
            _step_over(out, before, keys)
            out.write(value)
            before, count = keys, count + 1
        out.write("{}" if not count else "}" * len(before))
    return count


def _step_over(out: TextIO, before: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Close the objects that ended, open the new ones."""
    if not before:
        out.write("".join(f"{{{json.dumps(key)}: " for key in keys))
        return
    shared = next(i for i, (old, new) in enumerate(zip(before, keys, strict=True)) if old != new)
    out.write("}" * (len(before) - 1 - shared) + f", {json.dumps(keys[shared])}: ")
    out.write("".join(f"{{{json.dumps(key)}: " for key in keys[shared + 1 :]))
