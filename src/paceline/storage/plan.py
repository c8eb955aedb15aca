"""What to move: listed, filtered, compared with what is there; commit markers in a phase of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from paceline.storage.checksum import part_size
from paceline.storage.journal import Journal
from paceline.storage.report import Failure, Report
from paceline.storage.selection import Rule, is_marker, is_unfinished
from paceline.storage.store import Item, StorageError, Store

Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Move:
    """One file to move; `present` is what lies at the target now."""

    item: Item
    target: str
    present: Item | None


@dataclass(frozen=True)
class Plan:
    moves: tuple[Move, ...]
    markers: tuple[Move, ...]
    """Moved last, and only when everything beside and below them arrived."""


def choose(items: Iterable[Item], rule: Rule, report: Report) -> Iterator[Item]:
    """Items the rule keeps; unfinished files are named in the report, unreadable and unsafe ones are failures."""
    for item in items:
        if item.problem:
            report.failures.append(Failure(item.key, item.problem))
        elif not rule(item.key):
            continue
        elif is_unfinished(item.key):
            report.unfinished.append(item.key)
        elif not is_safe(item.key):
            report.failures.append(Failure(item.key, "the name leads out of the target directory"))
        else:
            yield item


def is_safe(key: str) -> bool:
    """A name from a bucket becomes a path here: it must stay below the target.

    >>> is_safe("a/b"), is_safe("../b"), is_safe("/etc/passwd"), is_safe("a//b")
    (True, False, False, False)
    """
    return "\0" not in key and all(part not in ("", ".", "..") for part in key.split("/"))


def make_plan(moves: Iterable[Move]) -> Plan:
    found = sorted(moves, key=lambda move: move.item.key)
    # Large files first: their parts fill the gaps that small ones leave at the end.
    usual = sorted((m for m in found if not is_marker(m.item.key)), key=lambda move: -move.item.size)
    return Plan(tuple(usual), tuple(m for m in found if is_marker(m.item.key)))


def pair(wanted: Iterable[Item], there: Mapping[str, Item], rename: Rename) -> list[Move]:
    """Every wanted file with what lies at its place in the target now."""
    return [Move(item, target, there.get(target)) for item in wanted for target in (rename(item.key),)]


def compare(
    source: Store, target: Store, moves: list[Move], *, journal: Journal, workers: int
) -> list[tuple[Move, bool]]:
    """Every file with whether it is at the target already, by size and checksum."""
    there = [move for move in moves if move.present is not None]
    if not there:
        return [(move, False) for move in moves]
    with ThreadPoolExecutor(workers) as pool:
        answers = pool.map(lambda move: is_same(source, target, move, journal), there)
        same = {move.item.key for move, answer in zip(there, answers, strict=True) if answer}
    return [(move, move.item.key in same) for move in moves]


def is_same(source: Store, target: Store, move: Move, journal: Journal) -> bool:
    if move.present is None or move.present.size != move.item.size or move.present.problem:
        return False
    if journal.is_done(move.item, move.present):
        return True
    try:
        for part in (None, part_size(move.item.size)):
            ours, theirs = (target.digest(move.present, part), None)
            if ours is not None and (theirs := source.digest(move.item, part)) is not None:
                if ours == theirs:
                    journal.done([(move.item, move.present)])
                return ours == theirs
    except StorageError:
        return False  # whatever it is, moving the file will meet it too and report it
    return False


def held_back(marker: Move, failures: Iterable[Failure]) -> Failure | None:
    """A marker must not appear beside files that are missing."""
    directory = marker.item.key.rpartition("/")[0]
    inside = f"{directory}/" if directory else ""
    for failure in failures:
        if failure.key.startswith(inside) and failure.key != marker.item.key:
            return Failure(marker.item.key, f"held back: {failure.key} did not arrive", failure.again)
    return None
