"""Finds the runs below a base directory by their content; clients name runs by id, never by path.

Parts (a rank's recording, see formats/base.py) become runs bottom-up:

- siblings of one rank each are the ranks of one run, unless all of them are the same rank: then they are runs;
- directories whose ranks overlap are runs of their own, and so are all directories beside a directory of several runs;
- otherwise a directory is one run with everything below it (hosts, rank tables, results of other tools).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.core.message import message, said_at
from paceline.formats.base import RankRecording
from paceline.formats.registry import find_recordings
from paceline.storage.file_tree import Tree, walk

FRESH_SECONDS = 5.0
"""A list younger than this, or than five times its scan time, is not refreshed."""
FIRST_SCAN_SECONDS, RESCAN_SECONDS = 60.0, 2.0
"""How long a request for an unknown run waits for the first scan, and for a refresh."""

_AUXILIARY_TABLES = frozenset({"ranks", "groups"})
"""Files that hold only these tables are not a run."""
_RUN_TABLES = frozenset({"steps", "kernels", "events"})
"""A part without a rank that holds one of these is a run of its own."""


@dataclass(frozen=True)
class FoundRun:
    """What is known about a run before it is read."""

    id: str
    name: str
    """Path below the base directory, "." for the base itself."""
    path: Path
    formats: tuple[str, ...]
    ranks: int
    files: int
    size: int
    changed: float
    """Newest file, seconds since 1970."""
    fingerprint: str
    """Of names, sizes and times of all its files."""


class Catalogue:
    """The list of runs, refreshed in the background when it is requested and outdated."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.warnings: tuple[str, ...] = ()
        self._runs: dict[str, FoundRun] = {}
        self._scanned = self._took = 0.0
        self._lock = threading.Lock()
        self._scan: threading.Thread | None = None

    @property
    def scanning(self) -> bool:
        return self._scan is not None and self._scan.is_alive()

    def runs(self, *, wait: float = 0.0) -> list[FoundRun]:
        """Newest first; `wait` is how many seconds to wait for a scan."""
        self.refresh()
        scan = self._scan
        if scan is not None and wait:
            scan.join(wait)
        return sorted(self._runs.values(), key=lambda run: (-run.changed, run.name))

    def get(self, run_id: str) -> FoundRun | None:
        """A run by its id; an unknown id triggers one scan, so that shared addresses of new runs work."""
        if run_id not in self._runs:
            self.runs(wait=RESCAN_SECONDS if self._scanned else FIRST_SCAN_SECONDS)
        return self._runs.get(run_id)

    def refresh(self) -> None:
        with self._lock:
            age = time.monotonic() - self._scanned
            if self.scanning or (self._scanned and age < max(FRESH_SECONDS, 5 * self._took)):
                return
            self._scan = threading.Thread(target=self._scan_base, name="paceline-catalogue", daemon=True)
            self._scan.start()

    def _scan_base(self) -> None:
        began = time.monotonic()
        try:
            tree = inside(walk(self.base), self.base)
            self._runs = {run.id: run for run in find_runs(tree)}
            self.warnings = tuple(map(str, tree.unreadable))
        except (PacelineError, OSError) as error:
            self.warnings = (str(error),)
        self._scanned = time.monotonic()
        self._took = self._scanned - began


def rescan_run(found: FoundRun, base: Path) -> FoundRun | None:
    """The run as its files are now; None when they are gone."""
    try:
        tree = inside(walk(found.path), base)
    except (PacelineError, OSError):
        return None
    parts = [part for part in find_recordings(tree) if part.tables - _AUXILIARY_TABLES]
    return _found(found.name, found.path, parts) if parts else None


def inside(tree: Tree, base: Path) -> Tree:
    """The tree without files that symbolic links place outside the base directory; these are listed as unreadable."""
    root = str(base.resolve()) + os.sep
    safe: dict[str, bool] = {}

    def is_inside(path: Path) -> bool:
        # Many files share a directory: its real path is looked up once, and only links among the files themselves.
        parent = str(path.parent)
        if parent not in safe:
            safe[parent] = (os.path.realpath(parent) + os.sep).startswith(root)
        return safe[parent] and (not path.is_symlink() or os.path.realpath(path).startswith(root))

    outside = {file.relative for file in tree.files if not is_inside(file.path)}
    if not outside:
        return tree
    named = tuple(said_at(name, message("link_outside")) for name in sorted(outside)[:20])
    kept = tuple(file for file in tree.files if file.relative not in outside)
    return Tree(tree.root, kept, (*tree.unreadable, *named))


def find_runs(tree: Tree) -> list[FoundRun]:
    """Group the parts that the readers recognise into runs."""
    parts = list(find_recordings(tree))
    return [
        _found(directory or ".", tree.root / directory if directory else tree.root, members)
        for directory, members in _runs_in("", parts)
        if any(part.tables - _AUXILIARY_TABLES for part in members)
    ]


def _runs_in(directory: str, parts: list[RankRecording]) -> list[tuple[str, list[RankRecording]]]:
    """Runs at or below a directory: (directory, parts)."""
    children: dict[str, list[RankRecording]] = defaultdict(list)
    for part in parts:
        rest = part.root[len(directory) :].lstrip("/") if directory else part.root
        if rest in ("", "."):
            return [(directory, parts)]
        children[rest.partition("/")[0]].append(part)
    below = {name: _join(directory, name) for name in children}
    leaves = all(part.root == below[name] for name, members in children.items() for part in members)
    one_each = all(len({part.rank for part in members}) == 1 for members in children.values())
    if leaves and one_each:
        return _siblings(directory, parts)
    found = {name: _runs_in(below[name], members) for name, members in children.items()}
    runs = [run for several in found.values() for run in several]
    if len(runs) > len(found) or _overlap(children.values()):
        return runs
    if len(runs) == 1 and not _is_generic(runs[0][0], directory):
        return runs
    return [(directory, parts)]


def _is_generic(run: str, directory: str) -> bool:
    """MindSpore names every recording's directory "profiler": the parent directory has the name of the run."""
    return run.rpartition("/")[0] == directory and run.rpartition("/")[2].startswith("profiler")


def _siblings(directory: str, parts: list[RankRecording]) -> list[tuple[str, list[RankRecording]]]:
    ranks = {part.rank for part in parts}
    jobs = {part.job for part in parts}
    if len(parts) > 1 and len(ranks) == 1 and (len(jobs) > 1 or "" in jobs):
        return [(part.root, [part]) for part in parts]
    return [(directory, parts)]


def _overlap(children: Iterable[list[RankRecording]]) -> bool:
    """Whether two directories hold the same rank, or one holds a complete run without a rank."""
    seen: set[int] = set()
    whole = others = 0
    for parts in children:
        ranks = {part.rank for part in parts if part.rank is not None}
        if ranks & seen:
            return True
        seen |= ranks
        alone = not ranks and any(part.tables & _RUN_TABLES for part in parts)
        whole += alone
        others += not alone and any(part.tables - _AUXILIARY_TABLES for part in parts)
    return whole > 1 or bool(whole and others)


def _found(directory: str, path: Path, parts: list[RankRecording]) -> FoundRun:
    files = {file for part in parts for section in part.sections for file in section.files}
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(f"{file.path}\0{file.size}\0{file.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return FoundRun(
        id=run_id(directory),
        name=directory,
        path=path,
        formats=tuple(sorted({part.format for part in parts if part.tables - _AUXILIARY_TABLES})),
        ranks=len({part.rank for part in parts if part.rank is not None}),
        files=len(files),
        size=sum(file.size for file in files),
        changed=max((file.mtime_ns for file in files), default=0) / 1e9,
        fingerprint=digest.hexdigest()[:16],
    )


def run_id(directory: str) -> str:
    """Readable, and safe in an address: the last name and a few digits of a hash of the whole path."""
    last = directory.rpartition("/")[2]
    word = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in last)[:40].strip("-")
    digest = hashlib.sha256(directory.encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"{word or 'run'}-{digest}"


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
