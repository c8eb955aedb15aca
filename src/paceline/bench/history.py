"""All benchmark results of this user, kept: one file each below $XDG_DATA_HOME/paceline/bench.

A result is written beside its place and renamed into it, and never changed afterwards: a killed process leaves a result
whole or not there, and nobody has to wait for anybody.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from paceline.bench.result import Result, encode, read_result
from paceline.errors import FormatError, UsageError
from paceline.whole import write_whole

_SAFE = re.compile(r"[A-Za-z0-9_.+-]{1,150}")


@dataclass(frozen=True)
class History:
    """Results in the order they were made, and what could not be read."""

    results: tuple[Result, ...]
    warnings: tuple[str, ...] = ()


def usual_place() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "paceline" / "bench"


def remember(result: Result, place: Path | None = None) -> Path:
    """Keep a result; the same one twice is kept once."""
    if not _SAFE.fullmatch(result.id):
        raise FormatError(f"a result called {result.id[:60]!r} cannot be kept under that name")
    target = (place or usual_place()) / f"{result.id}.json"
    if not target.exists():
        write_whole(target, encode(result))
    return target


def recall(place: Path | None = None, *, name: str | None = None) -> History:
    """All results, or those of one benchmark; names of files begin with their time."""
    results, warnings = [], []
    for path in sorted((place or usual_place()).glob("[!.]*.json")):
        try:
            result = read_result(path)
        except FormatError as error:
            warnings.append(str(error))
            continue
        if name is None or result.name == name:
            results.append(result)
    return History(tuple(results), tuple(warnings))


def last(name: str, place: Path | None = None) -> Result:
    """The newest result of a benchmark that ended well."""
    known = [result for result in recall(place, name=name).results if result.result == "OK"]
    if not known:
        raise UsageError(f"{name}: nothing of that name was benchmarked here", hint="paceline bench history lists all")
    return known[-1]
