"""From any place to any place: incremental, resumable, verified; markers last; nothing removed unless asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from paceline.errors import UsageError
from paceline.storage.apart import Apart
from paceline.storage.engine import Engine, Speed
from paceline.storage.journal import Journal
from paceline.storage.listing import pages
from paceline.storage.location import Location, parse
from paceline.storage.opening import open_item, open_store
from paceline.storage.passage import Passage
from paceline.storage.plan import Move, Plan, Rename, choose, compare, held_back, make_plan, pair
from paceline.storage.report import Counter, Failure, OnProgress, Report
from paceline.storage.retry import Gate, Retry, patiently
from paceline.storage.selection import Rule, everything, is_unfinished
from paceline.storage.store import Item, StorageError, Store

_ROUNDS = 3
"""How often files that changed while they were read are looked at anew."""


class Prune(str, Enum):
    """What may be removed, and only after everything was verified."""

    nothing = "nothing"
    source = "source"
    """Files that are verified at the target go from the source."""
    target = "target"
    """What the source no longer has goes from the target."""


@dataclass(frozen=True)
class Options:
    rule: Rule = everything
    rename: Rename = str
    prune: Prune = Prune.nothing
    speed: Speed = field(default_factory=Speed)
    progress: OnProgress | None = None


def transfer(source: str | Path, target: str | Path, options: Options | None = None) -> Report:
    """Bring `target` up to date with `source` (a directory's contents, or one file); failures are in the report."""
    options = options or Options()
    start, end = parse(source), parse(target)
    refuse_nesting(start, end)
    single = patiently(options.speed.backoff, lambda: open_item(start))
    if single is not None:
        store, item = single
        if is_unfinished(item.key):
            raise UsageError(
                f"{start.url}: its name says that it is still being written", hint="rename it when it is whole"
            )
        where, name = _file_target(str(target), end, start.name)
        # What lies beside the file at the target was never part of the source: it is not missing there now.
        prune = Prune.nothing if options.prune is Prune.target else options.prune
        only = Options(lambda key: key == item.key, lambda _: name, prune, options.speed, options.progress)
        return transfer_between(store, open_store(where), only, listed=[item])
    if start.scheme == "file" and not Path(start.path).exists():
        raise UsageError(f"{start.path}: no such file or directory")
    return transfer_between(open_store(start), open_store(end), options)


def transfer_between(
    source: Store, target: Store, options: Options, *, listed: Sequence[Item] | None = None, lasting: bool = True
) -> Report:
    """The same between open stores; they are closed at the end. Unless `lasting`, no later run will ask what was done."""
    if options.prune is Prune.target and target.local:
        raise UsageError("--prune removes nothing from this machine", hint="remove old files yourself")
    report = Report(source.url, target.url)
    started = time.monotonic()
    journal = Journal(source.url, target.url)
    try:
        _Transfer(source, target, journal, report, options).run(listed)
    finally:
        journal.close()
        if not lasting:
            journal.path.unlink(missing_ok=True)
        source.close()
        target.close()
        report.seconds = time.monotonic() - started
    return report


class _Transfer:
    def __init__(self, source: Store, target: Store, journal: Journal, report: Report, options: Options) -> None:
        self._source, self._target, self._journal = source, target, journal
        self._report, self._options = report, options
        self._counter = Counter(options.progress)
        self._landed: dict[str, tuple[Item, str, Item]] = {}
        """Source key → (source, target key, item at the target), verified in this run or before."""

    def run(self, listed: Sequence[Item] | None) -> None:
        wanted: list[Item] = []
        for number in range(_ROUNDS):
            self._report.failures.clear()
            self._report.unfinished.clear()
            if listed is None:
                found: Iterable[Sequence[Item]] = self._listing()
            else:
                found = [listed if number == 0 else self._refreshed(listed)]
            wanted = self._round(found)
            if not any(failure.again for failure in self._report.failures):
                break
        self._report.present = frozenset(target for _, target, _ in self._landed.values())
        if self._options.prune is Prune.source:
            self._free_source()
        elif self._options.prune is Prune.target:
            self._free_target(wanted)

    def _listing(self) -> Iterator[Sequence[Item]]:
        empty = True
        for page in pages(self._source, self._options.speed.backoff):
            empty = False
            yield page
        if empty and not self._source.local:
            raise UsageError(f"{self._source.url}: nothing there", hint="paceline ls shows what is; check the name")

    def _refreshed(self, listed: Sequence[Item]) -> list[Item]:
        return [self._source.stat(item.key) or item for item in listed]

    def _round(self, found: Iterable[Sequence[Item]]) -> list[Item]:
        """Move what is found, page by page while the listing goes on, then the markers; returns what was wanted."""
        wanted: list[Item] = []
        markers: list[Move] = []
        there = {item.key: item for page in pages(self._target, self._options.speed.backoff) for item in page}

        def moves() -> Iterator[Sequence[Move]]:
            for page in found:
                chosen = list(choose(page, self._options.rule, self._report))
                wanted.extend(chosen)
                plan = self._missing(chosen, there)
                markers.extend(plan.markers)
                yield plan.moves

        self._run(moves())
        self._finish(markers)
        return wanted

    def _missing(self, wanted: list[Item], there: Mapping[str, Item]) -> Plan:
        moves = pair(wanted, there, self._options.rename)
        workers = self._options.speed.workers
        compared = compare(self._source, self._target, moves, journal=self._journal, workers=workers)
        for move, same in compared:
            if same and move.present is not None and move.item.key not in self._landed:
                self._landed[move.item.key] = (move.item, move.target, move.present)
                self._report.same += 1
                self._report.same_bytes += move.item.size
        plan = make_plan(move for move, same in compared if not same)
        self._counter.plan(len(plan.moves) + len(plan.markers), sum(m.item.size for m in (*plan.moves, *plan.markers)))
        return plan

    def _finish(self, markers: Sequence[Move]) -> None:
        ready: list[Move] = []
        for marker in markers:
            failure = held_back(marker, self._report.failures)
            if failure is None:
                ready.append(marker)
            else:
                self._report.failures.append(failure)
                self._counter.add(1, 0)
        # A deeper marker first: the one above it speaks for all below.
        for depth in sorted({move.item.key.count("/") for move in ready}, reverse=True):
            self._run([[move for move in ready if move.item.key.count("/") == depth]])

    def _run(self, moves: Iterable[Sequence[Move]]) -> None:
        speed = self._options.speed
        retry = Retry(speed.backoff, Gate(speed.workers), threading.Event())
        passage = Passage(
            self._source, self._target, journal=self._journal, report=self._report, counter=self._counter, retry=retry
        )
        Engine(passage, speed.workers).run(moves)
        self._report.retries += retry.retries
        for move, landed in passage.landed:
            self._landed[move.item.key] = (move.item, move.target, landed)

    def _free_source(self) -> None:
        """Each file goes only after a fresh look at both sides found what was verified."""
        apart = Apart(self._source, self._target)
        for item, target, landed in self._landed.values():
            try:
                if not apart(item.key, target):
                    self._report.failures.append(Failure(item.key, "not pruned: its copy is the file itself"))
                elif self._target.stat(target) == landed and self._source.stat(item.key) == item:
                    self._source.remove(item.key)
                    self._report.pruned += 1
                else:
                    self._report.failures.append(Failure(item.key, "not pruned: it changed since it was verified"))
            except StorageError as error:
                self._report.failures.append(Failure(item.key, f"not pruned: {error}"))

    def _free_target(self, wanted: list[Item]) -> None:
        if self._report.failures or not wanted:
            return  # an incomplete or empty source is no reason to remove anything
        keep = {self._options.rename(item.key) for item in wanted}
        for item in list(self._target.items()):
            if item.key not in keep:
                self._target.remove(item.key)
                self._report.pruned += 1


def refuse_nesting(start: Location, end: Location) -> None:
    """A copy inside its source would be part of it the next time."""
    if start.scheme != end.scheme or start.host != end.host or start.port != end.port:
        return
    inner, outer = end.path.rstrip("/") + "/", start.path.rstrip("/") + "/"
    if inner.startswith(outer):
        raise UsageError(f"{end.url}: lies inside the source", hint="give a target beside it")


def _file_target(text: str, end: Location, name: str) -> tuple[Location, str]:
    """Where one file goes: into a directory under its own name, or to the name given."""
    if text.endswith("/") or not end.path.strip("/") or (end.scheme == "file" and Path(end.path).is_dir()):
        return end, name
    return end.parent, end.name
