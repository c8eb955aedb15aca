"""Collect the tree that training jobs upload to a bucket: <prefix>/<rank>/profiler/…"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.local import FileStore
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.retry import retry_call
from paceline.storage.transfer.transfer import TransferOptions, transfer_between
from paceline.storage.transfer.transfer_pool import TransferLimits
from paceline.storage.transfer.transfer_report import OnProgress, TransferReport


@dataclass(frozen=True)
class RankTreeResult:
    report: TransferReport
    missing: tuple[int, ...]
    """Ranks without any file in the bucket."""


def collect_ranks(
    source: str,
    target: Path,
    *,
    ranks: int | None = None,
    limits: TransferLimits | None = None,
    progress: OnProgress | None = None,
) -> RankTreeResult:
    """Fetch the files that readers open, of ranks 0 … ranks-1 (default: all ranks found); lists the bucket once."""
    limits = limits or TransferLimits()
    store = open_store(source)
    items = retry_call(limits.backoff, lambda: list(store.list_files()))
    if not items:
        raise UsageError(f"{store.url}: no such object or prefix", hint="check the name; paceline ls lists what exists")
    wanted = [item for item in items if needed_for_diagnosis(item.key) and _is_wanted(item.key, ranks)]
    options = TransferOptions(file_filter=needed_for_diagnosis, limits=limits, progress=progress)
    report = transfer_between(store, FileStore(target), options, listed=wanted)
    return RankTreeResult(report, _missing(wanted, ranks))


def _rank(key: str) -> int | None:
    first = key.partition("/")[0]
    return int(first) if first.isdecimal() and "/" in key else None


def _is_wanted(key: str, ranks: int | None) -> bool:
    """Files above the rank directories (a rank table, a mapping) are included."""
    rank = _rank(key)
    return rank is None or ranks is None or rank < ranks


def _missing(items: Iterable[StoredFile], ranks: int | None) -> tuple[int, ...]:
    found = {rank for item in items if (rank := _rank(item.key)) is not None}
    return tuple(rank for rank in range(ranks or 0) if rank not in found)
