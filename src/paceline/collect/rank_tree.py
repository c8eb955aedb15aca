"""Gathers the {rank} tree that training jobs upload to a bucket: <prefix>/<rank>/profiler/…"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.storage.engine import Speed
from paceline.storage.file import FileStore
from paceline.storage.opening import open_store
from paceline.storage.report import OnProgress, Report
from paceline.storage.retry import patiently
from paceline.storage.selection import for_diagnosis
from paceline.storage.store import Item
from paceline.storage.transfer import Options, transfer_between


@dataclass(frozen=True)
class Gathered:
    report: Report
    missing: tuple[int, ...]
    """Ranks of which nothing lies in the bucket."""


def collect_ranks(
    source: str,
    target: Path,
    *,
    ranks: int | None = None,
    speed: Speed | None = None,
    progress: OnProgress | None = None,
) -> Gathered:
    """Fetch what readers open of ranks 0 … ranks-1 (all that are there without a number), listing the bucket once."""
    speed = speed or Speed()
    store = open_store(source)
    items = patiently(speed.backoff, lambda: list(store.items()))
    if not items:
        raise UsageError(f"{store.url}: nothing there", hint="paceline ls shows what is; check the name")
    wanted = [item for item in items if for_diagnosis(item.key) and _is_wanted(item.key, ranks)]
    options = Options(rule=for_diagnosis, speed=speed, progress=progress)
    report = transfer_between(store, FileStore(target), options, listed=wanted)
    return Gathered(report, _missing(wanted, ranks))


def _rank(key: str) -> int | None:
    first = key.partition("/")[0]
    return int(first) if first.isdecimal() and "/" in key else None


def _is_wanted(key: str, ranks: int | None) -> bool:
    """Files above the ranks (a rank table, a mapping) come along."""
    rank = _rank(key)
    return rank is None or ranks is None or rank < ranks


def _missing(items: Iterable[Item], ranks: int | None) -> tuple[int, ...]:
    there = {rank for item in items if (rank := _rank(item.key)) is not None}
    return tuple(rank for rank in range(ranks or 0) if rank not in there)
