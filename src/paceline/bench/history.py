"""History of benchmark results: one file each below $XDG_DATA_HOME/paceline/bench.

A result is written atomically and never changed afterwards, so that no lock is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.bench.result import BaselineComparison, BenchResult, encode, read_result
from paceline.bench.statistics.baseline import compare
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import FormatError, UsageError

RESERVED = ("last", "best")
"""Baselines that are found, not named."""
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
    """The newest accepted result of a benchmark: regressions are no baseline."""
    return _accepted_of(name, place)[-1]


def best_result(name: str, place: Path | None = None) -> BenchResult:
    """The accepted result with the highest throughput of the largest size."""
    return max(_accepted_of(name, place), key=lambda result: (result.largest.ranks, result.largest.throughput.mean))


def accepted(results: Sequence[BenchResult]) -> list[BenchResult]:
    """Without failed runs, failed expectations, and what is really worse than the best accepted one before it.

    Comparing with the best, not with the one before, keeps many small regressions from adding up unseen.
    """
    kept: list[BenchResult] = []
    for result in results:
        if result.result != "OK" or result.verdict == "FAIL" or _has_worse(result.comparisons):
            continue
        if not any(_is_worse(result, before) for before in kept):
            kept.append(result)
    return kept


def pin_result(name: str, result: BenchResult, place: Path | None = None) -> Path:
    """Keep a result as a baseline of this name; pinning again replaces it."""
    if not _SAFE.fullmatch(name) or name in RESERVED:
        raise UsageError(f"{name!r} cannot be the name of a baseline", hint="use letters, digits, . _ + and -")
    target = _pins(place) / f"{name}.json"
    atomic_write_text(target, encode(result))
    return target


def pinned_result(name: str, place: Path | None = None) -> BenchResult | None:
    target = _pins(place) / f"{name}.json"
    return read_result(target) if _SAFE.fullmatch(name) and target.is_file() else None


def pinned_names(place: Path | None = None) -> list[str]:
    return sorted(path.stem for path in _pins(place).glob("[!.]*.json"))


def _pins(place: Path | None) -> Path:
    return (place or default_history_directory()) / "pinned"


def _accepted_of(name: str, place: Path | None) -> list[BenchResult]:
    known = accepted(load_history(place, name=name).results)
    if not known:
        raise UsageError(f"no benchmark named {name} in the history", hint="paceline bench history lists all")
    return known


def _has_worse(comparisons: Sequence[BaselineComparison]) -> bool:
    return any(each.verdict == "worse" for each in comparisons)


def _is_worse(result: BenchResult, before: BenchResult) -> bool:
    sizes = {(each.ranks, each.nodes) for each in before.measurements}
    if result.backend != before.backend or not any((each.ranks, each.nodes) in sizes for each in result.measurements):
        return False
    return _has_worse(compare(result, before, before.id))
