"""History of benchmark results: one file each below $XDG_DATA_HOME/paceline/bench.

A result is written atomically and never changed afterwards, so that no lock is needed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from paceline.bench.result import BenchResult, encode, read_result
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import FormatError, UsageError

_SAFE = re.compile(r"[A-Za-z0-9_.+-]{1,150}")


@dataclass(frozen=True)
class BenchHistory:
    """Results in the order of their runs, and warnings about files that could not be read."""

    results: tuple[BenchResult, ...]
    warnings: tuple[str, ...] = ()


def default_history_directory() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "paceline" / "bench"


def save_result(result: BenchResult, place: Path | None = None) -> Path:
    """Store a result; storing it twice changes nothing."""
    if not _SAFE.fullmatch(result.id):
        raise FormatError(f"result id {result.id[:60]!r} cannot be used as a file name")
    target = (place or default_history_directory()) / f"{result.id}.json"
    if not target.exists():
        atomic_write_text(target, encode(result))
    return target


def load_history(place: Path | None = None, *, name: str | None = None) -> BenchHistory:
    """All results, or those of one benchmark; file names begin with the time of the run."""
    results, warnings = [], []
    for path in sorted((place or default_history_directory()).glob("[!.]*.json")):
        try:
            result = read_result(path)
        except FormatError as error:
            warnings.append(str(error))
            continue
        if name is None or result.name == name:
            results.append(result)
    return BenchHistory(tuple(results), tuple(warnings))


def latest_result(name: str, place: Path | None = None) -> BenchResult:
    """The newest successful result of a benchmark."""
    known = [result for result in load_history(place, name=name).results if result.result == "OK"]
    if not known:
        raise UsageError(f"no benchmark named {name} in the history", hint="paceline bench history lists all")
    return known[-1]
