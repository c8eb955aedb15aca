"""Transfer files from any store to any other: incremental, resumable, verified; removes nothing unless asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.storage.file_selection import FileFilter, everything, is_unfinished
from paceline.storage.store_errors import StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.open_store import open_item, open_store
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.paged_listing import list_pages
from paceline.storage.transfer.retry import ConcurrencyLimit, Retrier, retry_call
from paceline.storage.transfer.same_location import SameLocationCheck
from paceline.storage.transfer.transfer_context import TransferContext
from paceline.storage.transfer.transfer_plan import (
    FileTransfer,
    Rename,
    TransferPlan,
    blocked_marker,
    find_unchanged,
    pair_with_target,
    plan_transfers,
    select_files,
)
from paceline.storage.transfer.transfer_pool import TransferLimits, TransferPool
from paceline.storage.transfer.transfer_report import OnProgress, ProgressCounter, TransferFailure, TransferReport
from paceline.storage.url import StorageUrl, parse_url

_MAX_ROUNDS = 3
"""How often files that changed while they were read are attempted."""


class Prune(str, Enum):
    """What may be removed, and only after everything was verified."""

    nothing = "nothing"
    source = "source"
    """Remove files from the source that are verified at the target."""
    target = "target"
    """Remove files from the target that the source no longer has."""


@dataclass(frozen=True)
class TransferOptions:
    file_filter: FileFilter = everything
    rename: Rename = str
    prune: Prune = Prune.nothing
    limits: TransferLimits = field(default_factory=TransferLimits)
    progress: OnProgress | None = None


def transfer(source: str | Path, target: str | Path, options: TransferOptions | None = None) -> TransferReport:
    """Bring `target` up to date with `source` (a directory's contents, or one file); failures are in the report."""
    options = options or TransferOptions()
    source_url, target_url = parse_url(source), parse_url(target)
    check_not_nested(source_url, target_url)
    single = retry_call(options.limits.backoff, lambda: open_item(source_url))
    if single is not None:
        store, item = single
        if is_unfinished(item.key):
            raise UsageError(
                f"{source_url.text}: looks like a partial file (its name ends in .{item.key.rpartition('.')[2]})",
                hint="rename it when it is complete",
            )
        directory, name = _file_target(str(target), target_url, source_url.name)
        # Other files of the target directory were never part of this source: they must not be pruned.
        prune = Prune.nothing if options.prune is Prune.target else options.prune
        only = TransferOptions(lambda key: key == item.key, lambda _: name, prune, options.limits, options.progress)
        return transfer_between(store, open_store(directory), only, listed=[item])
    if source_url.scheme == "file" and not Path(source_url.path).exists():
        raise UsageError(f"{source_url.path}: no such file or directory")
    return transfer_between(open_store(source_url), open_store(target_url), options)


def transfer_between(
    source: Store,
    target: Store,
    options: TransferOptions,
    *,
    listed: Sequence[StoredFile] | None = None,
    keep_journal: bool = True,
) -> TransferReport:
    """Transfer between open stores and close them. `listed` replaces the listing of the source; the journal is removed
    unless a later run can use it."""
    if options.prune is Prune.target and target.is_local:
        raise UsageError("--prune does not remove files from this machine", hint="remove old files yourself")
    report = TransferReport(source.url, target.url)
    started = time.monotonic()
    journal = Journal(source.url, target.url)
    try:
        _Transfer(source, target, journal, report, options).run(listed)
    finally:
        journal.close()
        if not keep_journal:
            journal.path.unlink(missing_ok=True)
        source.close()
        target.close()
        report.seconds = time.monotonic() - started
    return report


class _Transfer:
    def __init__(
        self, source: Store, target: Store, journal: Journal, report: TransferReport, options: TransferOptions
    ) -> None:
        self._source, self._target, self._journal = source, target, journal
        self._report, self._options = report, options
        self._counter = ProgressCounter(options.progress)
        self._verified: dict[str, tuple[StoredFile, str, StoredFile]] = {}
        """Source key → (source file, target key, target file), verified in this run or before."""

    def run(self, listed: Sequence[StoredFile] | None) -> None:
        wanted: list[StoredFile] = []
        for number in range(_MAX_ROUNDS):
            self._report.failures.clear()
            self._report.unfinished.clear()
            if listed is None:
                pages: Iterable[Sequence[StoredFile]] = self._list_source()
            else:
                pages = [listed if number == 0 else self._refreshed(listed)]
            wanted = self._run_round(pages)
            if not any(failure.retryable for failure in self._report.failures):
                break
        self._report.present = frozenset(target for _, target, _ in self._verified.values())
        if self._options.prune is Prune.source:
            self._prune_source()
        elif self._options.prune is Prune.target:
            self._prune_target(wanted)

    def _list_source(self) -> Iterator[Sequence[StoredFile]]:
        empty = True
        for page in list_pages(self._source, self._options.limits.backoff):
            empty = False
            yield page
        if empty and not self._source.is_local:
            raise UsageError(
                f"{self._source.url}: no such object or prefix", hint="check the name; paceline ls lists what exists"
            )

    def _refreshed(self, listed: Sequence[StoredFile]) -> list[StoredFile]:
        return [self._source.stat(item.key) or item for item in listed]

    def _run_round(self, pages: Iterable[Sequence[StoredFile]]) -> list[StoredFile]:
        """Transfer page by page while the listing goes on, then the markers; returns all selected files."""
        wanted: list[StoredFile] = []
        markers: list[FileTransfer] = []
        target_pages = list_pages(self._target, self._options.limits.backoff)
        at_target = {item.key: item for page in target_pages for item in page}

        def moves() -> Iterator[Sequence[FileTransfer]]:
            for page in pages:
                selected = list(select_files(page, self._options.file_filter, self._report))
                wanted.extend(selected)
                plan = self._plan_missing(selected, at_target)
                markers.extend(plan.markers)
                yield plan.moves

        self._run_pool(moves())
        self._transfer_markers(markers)
        return wanted

    def _plan_missing(self, wanted: list[StoredFile], at_target: Mapping[str, StoredFile]) -> TransferPlan:
        moves = pair_with_target(wanted, at_target, self._options.rename)
        workers = self._options.limits.workers
        compared = find_unchanged(self._source, self._target, moves, journal=self._journal, workers=workers)
        for move, same in compared:
            if same and move.present is not None and move.item.key not in self._verified:
                self._verified[move.item.key] = (move.item, move.target, move.present)
                self._report.same += 1
                self._report.same_bytes += move.item.size
        plan = plan_transfers(move for move, same in compared if not same)
        self._counter.plan(len(plan.moves) + len(plan.markers), sum(m.item.size for m in (*plan.moves, *plan.markers)))
        return plan

    def _transfer_markers(self, markers: Sequence[FileTransfer]) -> None:
        ready: list[FileTransfer] = []
        for marker in markers:
            failure = blocked_marker(marker, self._report.failures)
            if failure is None:
                ready.append(marker)
            else:
                self._report.failures.append(failure)
                self._counter.add(1, 0)
        # Deeper markers first: a marker says that everything below its directory is complete.
        for depth in sorted({move.item.key.count("/") for move in ready}, reverse=True):
            self._run_pool([[move for move in ready if move.item.key.count("/") == depth]])

    def _run_pool(self, moves: Iterable[Sequence[FileTransfer]]) -> None:
        limits = self._options.limits
        retry = Retrier(limits.backoff, ConcurrencyLimit(limits.workers), threading.Event())
        context = TransferContext(
            self._source, self._target, journal=self._journal, report=self._report, counter=self._counter, retry=retry
        )
        TransferPool(context, limits.workers).run(moves)
        self._report.retries += retry.retries
        for move, written in context.transferred:
            self._verified[move.item.key] = (move.item, move.target, written)

    def _prune_source(self) -> None:
        """Remove each file only if source and target, looked up again, are what was verified."""
        same_location = SameLocationCheck(self._source, self._target)
        for item, target, written in self._verified.values():
            try:
                if same_location.is_same_file(item.key, target):
                    self._fail_prune(item, "source and target are the same file")
                elif self._target.stat(target) == written and self._source.stat(item.key) == item:
                    self._source.remove(item.key)
                    self._report.pruned += 1
                else:
                    self._fail_prune(item, "it changed after it was verified")
            except StorageError as error:
                self._fail_prune(item, str(error))

    def _fail_prune(self, item: StoredFile, reason: str) -> None:
        self._report.failures.append(TransferFailure(item.key, f"not pruned: {reason}"))

    def _prune_target(self, wanted: list[StoredFile]) -> None:
        if self._report.failures or not wanted:
            return  # an incomplete or empty source is no reason to remove anything
        keep = {self._options.rename(item.key) for item in wanted}
        for item in list(self._target.list_files()):
            if item.key not in keep:
                self._target.remove(item.key)
                self._report.pruned += 1


def check_not_nested(source: StorageUrl, target: StorageUrl) -> None:
    """A copy inside its source would be part of the source the next time."""
    if source.scheme != target.scheme or source.host != target.host or source.port != target.port:
        return
    inner, outer = target.path.rstrip("/") + "/", source.path.rstrip("/") + "/"
    if inner.startswith(outer):
        raise UsageError(f"{target.text}: lies inside the source", hint="choose a target outside the source")


def _file_target(text: str, target: StorageUrl, name: str) -> tuple[StorageUrl, str]:
    """Directory and name for one file: into a directory under its own name, or to the name given."""
    if text.endswith("/") or not target.path.strip("/") or (target.scheme == "file" and Path(target.path).is_dir()):
        return target, name
    return target.parent, target.name
