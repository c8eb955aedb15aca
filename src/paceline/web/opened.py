"""A run that is open: read and examined in the background, then asked by many requests at once."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.advice.case import Case
from paceline.advice.engine import diagnose
from paceline.advice.finding import Diagnosis
from paceline.advice.hardware import Hardware
from paceline.advice.present import as_json
from paceline.analysis.compare import Measured, measure
from paceline.errors import PacelineError, UsageError
from paceline.report.data import ReportData, report_data
from paceline.report.html import document
from paceline.report.table import packed
from paceline.run.engines.processes import Processes
from paceline.run.index import Reading
from paceline.run.run import Run
from paceline.storage.tree import walk
from paceline.web.answers import Answers
from paceline.web.catalogue import FoundRun, inside
from paceline.web.lanes import Lanes, build_lanes
from paceline.web.snapshot import Snapshot, make_snapshot

MOST_OPEN = 8
"""Runs kept open; the one nobody asked for longest is closed first."""

MOST_ANSWERS = 256
"""What-ifs that are remembered of one run."""

FOUND, QUEUED, READING, EXAMINING, READY, FAILED = "found", "queued", "reading", "examining", "ready", "failed"
LANGUAGES = ("en", "zh")

PARTS = {"arrivals": ("arrivals",), "operators": ("operators", "operator_times")}
"""Tables of the report that one view needs: it asks for them when it is shown, so that the first view stays light."""

_ASKED_APART = ("links", "host_links", "memory", *(name for names in PARTS.values() for name in names))
"""What does not travel with the overview; links and memory have answers of their own."""

Result = TypeVar("Result")
_log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class State:
    """How far a run is; done and total are bytes while reading."""

    phase: str
    done: int = 0
    total: int = 0
    message: str | None = None
    hint: str | None = None


class NotReadyError(PacelineError):
    """A run that is still being read, or could not be."""

    def __init__(self, state: State) -> None:
        super().__init__(state.message or f"this run is not ready: {state.phase}", hint=state.hint)
        self.state = state


class OpenRun:
    """One run as the server holds it. All work on the Run itself happens under `_lock`; requests use cursors."""

    def __init__(self, found: FoundRun, base: Path, hardware: Hardware) -> None:
        self.found, self._base, self._hardware = found, base, hardware
        self.state = State(QUEUED)
        self.timeline_state = State(FOUND)
        self.used = time.monotonic()
        self.users = 0
        self.opened = time.time()
        self.diagnosis: Diagnosis | None = None
        self.undiagnosed: str | None = None
        """Why there is no diagnosis."""
        self._documents: dict[str, bytes] = {}
        self._parts: dict[str, bytes] = {}
        self.answers = Answers()
        self._lanes: Lanes | None = None
        self._answers: dict[tuple[str, ...], object] = {}
        self._run: Run | None = None
        self._lock = threading.RLock()
        self._scratch = Path(tempfile.mkdtemp(prefix="paceline-web-"))

    # -- in the background -------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Open, read, examine; whatever fails becomes the state, never an exception."""
        try:
            with self._lock:
                self.state = State(READING)
                self._stay_inside()
                self._run = Run(self.found.path, engine=Processes(os.cpu_count() or 1), progress=self._progress)
                make_snapshot(self._run, self._scratch, self._hardware.peak_rate)
                self.state = State(EXAMINING)
                self._examine(self._run)
                self.state = State(READY)
        except PacelineError as error:
            self.state = State(FAILED, message=str(error), hint=error.hint)
        except Exception as error:  # this thread has nobody else to tell: a run that cannot be shown must say so
            _log.exception("reading %s failed", self.found.name)
            hint = "the files may have changed while they were read; try again"
            self.state = State(FAILED, message=_one_line(error), hint=hint)

    def warm(self) -> None:
        """Work out beforehand what the first what-if or comparison would have to wait for."""
        if self.diagnosis is None or self.state.phase != READY:
            return
        try:
            with self._lock:
                _ = self.case.replay.base, self.case.excess
                _ = self.measured
        except PacelineError as error:
            # Whoever asks for it is told; until then nobody needs to know.
            _log.info("%s: %s", self.found.name, error)

    def prepare_timeline(self) -> None:
        """Read the events and lay them out in lanes."""
        try:
            with self._lock:
                self.timeline_state = State(READING)
                run = self._ready()
                run.load(["events"])
                self.timeline_state = State(EXAMINING)
                self._lanes = build_lanes(run, self._scratch)
                self.timeline_state = State(READY)
        except PacelineError as error:
            self.timeline_state = State(FAILED, message=str(error), hint=error.hint)
        except Exception as error:  # as above
            _log.exception("the timeline of %s failed", self.found.name)
            self.timeline_state = State(FAILED, message=_one_line(error))

    def _stay_inside(self) -> None:
        tree = walk(self.found.path)
        allowed = inside(tree, self._base)
        if len(allowed.files) < len(tree.files):
            raise PacelineError(
                f"{self.found.name}: a symbolic link leads outside the served directory: {allowed.unreadable[-1]}",
                hint="serve a directory that holds the files themselves, or open this run with paceline diagnose",
            )

    def _progress(self, now: Reading) -> None:
        if self.state.phase == READING:
            self.state = replace(self.state, done=now.done, total=now.total)
        elif self.timeline_state.phase == READING:
            self.timeline_state = replace(self.timeline_state, done=now.done, total=now.total)

    def _examine(self, run: Run) -> None:
        try:
            self.diagnosis = diagnose(run, hardware=self._hardware)
        except UsageError as error:
            # A recording without a single step is shown all the same, and the page says why nothing was concluded.
            self.undiagnosed = str(error)
        texts = {language: as_json(self.diagnosis, language) for language in LANGUAGES} if self.diagnosis else {}
        report = report_data(run, texts, nominal=self._hardware.nominal_speeds)
        self._documents = {language: self._document(report, language) for language in LANGUAGES}
        self._parts = {
            part: _compressed({"tables": {name: packed(report.tables[name]) for name in names}})
            for part, names in PARTS.items()
        }

    def _document(self, report: ReportData, language: str) -> bytes:
        tables = {name: table for name, table in report.tables.items() if name not in _ASKED_APART}
        whole = document(replace(report, tables=tables), language)
        about = {"run": self.found.id, "undiagnosed": self.undiagnosed, "source": self.found.name}
        return _compressed(whole | about)

    # -- for requests ------------------------------------------------------------------------------------------------

    def report(self, language: str) -> bytes:
        """What all pages of a run share, as compressed JSON: schema "paceline.report/1"."""
        self._ready()
        return self._documents[language]

    def part(self, name: str) -> bytes:
        """Tables of the report that only one view needs, as compressed JSON."""
        self._ready()
        return self._parts[name]

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        run = self._ready()
        self.used = time.monotonic()
        self.users += 1
        cursor = run.connection.cursor()
        try:
            yield Snapshot(cursor)
        finally:
            self.users -= 1
            cursor.close()

    @property
    def lanes(self) -> Lanes:
        if self._lanes is None:
            raise NotReadyError(self.timeline_state)
        return self._lanes

    @cached_property
    def case(self) -> Case:
        """What the replay works on; needs `exclusive`."""
        return Case(self._ready(), hardware=self._hardware)

    @cached_property
    def measured(self) -> Measured:
        """What is compared with other runs; needs `exclusive`."""
        return measure(self._ready())

    def exclusive(self, work: Callable[[], Result]) -> Result:
        """Do something that uses the Run itself; one at a time."""
        self._ready()
        self.users += 1
        try:
            with self._lock:
                return work()
        finally:
            self.users -= 1

    def remembered(self, key: tuple[str, ...], work: Callable[[], Result]) -> Result:
        """The answer to a question about the whole run that was asked before, or work it out."""
        known = self._answers.get(key)
        if known is None:
            known = self.exclusive(work)
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.pop(next(iter(self._answers)))
            self._answers[key] = known
        return known  # type: ignore[return-value]

    def close(self) -> None:
        with self._lock:
            if self._run is not None:
                self._run.close()
            self._run = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _ready(self) -> Run:
        if self.state.phase != READY or self._run is None:
            raise NotReadyError(self.state)
        return self._run


def _compressed(value: object) -> bytes:
    return gzip.compress(msgspec.json.encode(value), compresslevel=3)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class OpenRuns:
    """The runs that are open, read one after the other."""

    def __init__(self, base: Path, hardware: Hardware) -> None:
        self._base, self._hardware = base, hardware
        self._open: dict[str, OpenRun] = {}
        self._lock = threading.Lock()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="paceline-read")

    def get(self, run_id: str) -> OpenRun | None:
        return self._open.get(run_id)

    def open(self, found: FoundRun, *, again: bool = False) -> OpenRun:
        """Open a run unless it is open; `again` reads it anew, with the files as they are now."""
        with self._lock:
            known = self._open.get(found.id)
            if known is not None and not again and known.state.phase != FAILED:
                return known
            self._make_room()
            opened = self._open[found.id] = OpenRun(found, self._base, self._hardware)
        if known is not None:
            self._reader.submit(known.close)
        self._reader.submit(opened.read)
        self._reader.submit(opened.warm)
        return opened

    def open_timeline(self, opened: OpenRun) -> None:
        """Once; a timeline that failed stays so until the run is read again."""
        with self._lock:
            if opened.timeline_state.phase != FOUND:
                return
            opened.timeline_state = State(QUEUED)
        self._reader.submit(opened.prepare_timeline)

    def close(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def _make_room(self) -> None:
        idle = sorted((run for run in self._open.values() if not run.users), key=lambda run: run.used)
        for run in idle[: max(0, len(self._open) - MOST_OPEN + 1)]:
            if run.state.phase in (READY, FAILED):
                del self._open[run.found.id]
                self._reader.submit(run.close)
