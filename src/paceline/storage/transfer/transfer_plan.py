"""Plan a transfer: select files, compare them with the target, and set commit markers aside for last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable

from paceline.core.zip_strict import zip_strict
from paceline.storage.checksum import part_size
from paceline.storage.file_selection import FileFilter, is_marker, is_unfinished
from paceline.storage.store_errors import StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.transfer_report import TransferFailure, TransferReport

Rename = Callable[[str], str]


@dataclass(frozen=True)
class FileTransfer:
    """One file to transfer."""

    item: StoredFile
    """The file at the source."""
    target: str
    """Its key at the target."""
    present: StoredFile | None
    """The file that exists at the target now."""


@dataclass(frozen=True)
class TransferPlan:
    moves: tuple[FileTransfer, ...]
    markers: tuple[FileTransfer, ...]
    """Transferred last, and only when all files in and below their directories were transferred."""


def select_files(items: Iterable[StoredFile], file_filter: FileFilter, report: TransferReport) -> Iterator[StoredFile]:
    """Files that pass the filter; unfinished files are listed in the report, unreadable and unsafe ones are failures."""
    for item in items:
        if item.problem:
            report.failures.append(TransferFailure(item.key, item.problem))
        elif not file_filter(item.key):
            continue
        elif is_unfinished(item.key):
            report.unfinished.append(item.key)
        elif not is_safe_key(item.key):
            report.failures.append(TransferFailure(item.key, "the name points outside the target directory"))
        else:
            yield item


def is_safe_key(key: str) -> bool:
    """Whether the path that a key becomes stays below the target directory.

    >>> is_safe_key("a/b"), is_safe_key("../b"), is_safe_key("/etc/passwd"), is_safe_key("a//b")
    (True, False, False, False)
    """
    return "\0" not in key and all(part not in ("", ".", "..") for part in key.split("/"))


def plan_transfers(moves: Iterable[FileTransfer]) -> TransferPlan:
    by_key = sorted(moves, key=lambda move: move.item.key)
    # Large files first, so that none is left to be transferred alone at the end.
    files = sorted((m for m in by_key if not is_marker(m.item.key)), key=lambda move: -move.item.size)
    return TransferPlan(tuple(files), tuple(m for m in by_key if is_marker(m.item.key)))


def pair_with_target(
    wanted: Iterable[StoredFile], at_target: Mapping[str, StoredFile], rename: Rename
) -> list[FileTransfer]:
    """Every wanted file with the file that exists under its key at the target now."""
    return [FileTransfer(item, target, at_target.get(target)) for item in wanted for target in (rename(item.key),)]


def find_unchanged(
    source: Store, target: Store, moves: list[FileTransfer], *, journal: Journal, workers: int
) -> list[tuple[FileTransfer, bool]]:
    """Every file with whether the target already has it, by size and checksum."""
    present = [move for move in moves if move.present is not None]
    if not present:
        return [(move, False) for move in moves]
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(lambda move: is_unchanged(source, target, move, journal), present)
        unchanged = {move.item.key for move, same in zip_strict(present, results) if same}
    return [(move, move.item.key in unchanged) for move in moves]


def is_unchanged(source: Store, target: Store, move: FileTransfer, journal: Journal) -> bool:
    if move.present is None or move.present.size != move.item.size or move.present.problem:
        return False
    if journal.is_done(move.item, move.present):
        return True
    try:
        for part in (None, part_size(move.item.size)):
            target_digest, source_digest = (target.digest(move.present, part), None)
            if target_digest is not None and (source_digest := source.digest(move.item, part)) is not None:
                if target_digest == source_digest:
                    journal.record_done([(move.item, move.present)])
                return target_digest == source_digest
    except StorageError:
        return False  # the transfer of the file meets the same error and reports it
    return False


def blocked_marker(marker: FileTransfer, failures: Iterable[TransferFailure]) -> TransferFailure | None:
    """The failure of a marker when a file in or below its directory is missing at the target; else None."""
    directory = marker.item.key.rpartition("/")[0]
    inside = f"{directory}/" if directory else ""
    for failure in failures:
        if failure.key.startswith(inside) and failure.key != marker.item.key:
            return TransferFailure(
                marker.item.key, f"not written: {failure.key} was not transferred", failure.retryable
            )
    return None
