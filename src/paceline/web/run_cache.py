"""Cache of runs: each is read and diagnosed in the background, then queried by many requests at once."""

from __future__ import annotations

import gzip
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import LANGUAGES, Language
from paceline.core.scratch_directory import scratch_directory
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.diagnose import examine
from paceline.diagnosis.finding import Diagnosis, Finding
from paceline.diagnosis.hardware import Hardware
from paceline.diagnosis.render import in_words
from paceline.metrics.compare import Measured, measure
from paceline.output.json_columns import JsonTable, pack_table
from paceline.output.report import Report, report_document
from paceline.output.report_data import ReportData, report_data
from paceline.run.executors.processes import ProcessExecutor
from paceline.run.ingest import ReadProgress
from paceline.run.run import Run
from paceline.storage.file_tree import walk
from paceline.web.catalogue import FoundRun, inside
from paceline.web.problems import ServerError
from paceline.web.response_cache import ResponseCache
from paceline.web.snapshot import Snapshot, make_snapshot
from paceline.web.timeline_layout import Lanes, build_lanes

MOST_OPEN = 8
"""Runs kept in the cache; the least recently used is closed first."""

MOST_RESULTS = 256
"""Cached what-if results of one run."""

Phase = Literal["found", "queued", "reading", "examining", "ready", "failed"]
FOUND: Phase = "found"
QUEUED: Phase = "queued"
READING: Phase = "reading"
EXAMINING: Phase = "examining"
READY: Phase = "ready"
FAILED: Phase = "failed"

LAZY_TABLES = {
    "arrivals": ("arrivals",),
    "operators": ("operators", "operator_times", "operator_links", "operator_transports", "operator_packets"),
}
"""Tables that one section needs and fetches when it is shown, so that the overview stays small."""

_NOT_IN_OVERVIEW = ("links", "host_links", "memory", *(name for names in LAZY_TABLES.values() for name in names))
"""Tables left out of the overview; links and memory have endpoints of their own."""

Result = TypeVar("Result")
_log = logging.getLogger("uvicorn.error")


class ServedReport(Report, frozen=True, kw_only=True):
    """The report of a run that is open on the server; `source` is its name there."""

    run: str
    """Id of the run."""
    undiagnosed: str | None
    """Why there is no diagnosis."""


class ReportTables(msgspec.Struct, frozen=True):
    """Tables of the report that only one view needs."""

    tables: dict[str, JsonTable]


@dataclass(frozen=True)
class ReadState:
    """Progress of reading a run; done and total are bytes while reading."""

    phase: Phase
    done: int = 0
    total: int = 0
    message: str | None = None
    hint: str | None = None


class NotReadyError(ServerError):
    """A run that is still being read (409), or could not be (500)."""

    def __init__(self, state: ReadState) -> None:
        self.state = state
        self.status = 500 if state.phase == FAILED else 409
        super().__init__("not_ready", phase=state.phase)

    def message(self, language: Language) -> str:
        return self.state.message or super().message(language)

    def hint_in(self, language: Language) -> str | None:
        return self.state.hint


class CachedRun:
    """One run in the cache. All work on the Run itself happens under `_lock`; requests use cursors."""

    def __init__(self, found: FoundRun, base: Path, hardware: Hardware) -> None:
        self.found, self._base, self._hardware = found, base, hardware
        self.state = ReadState(QUEUED)
        self.timeline_state = ReadState(FOUND)
        self.last_used = time.monotonic()
        self.users = 0
        self.diagnoses: dict[Language, Diagnosis] = {}
        """The findings in every language; empty where nothing could be diagnosed."""
        self.undiagnosed: str | None = None
        """Why there is no diagnosis."""
        self._documents: dict[Language, bytes] = {}
        self._lazy_tables: dict[str, bytes] = {}
        self.responses = ResponseCache()
        self._lanes: Lanes | None = None
        self._results: dict[tuple[str, ...], object] = {}
        self._run: Run | None = None
        self._lock = threading.RLock()
        self._open = ExitStack()
        self._scratch = self._open.enter_context(scratch_directory())

    # -- in the background -------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Open, read and diagnose; a failure becomes the state, never an exception."""
        try:
            with self._lock:
                self.state = ReadState(READING)
                self._check_links()
                self._run = Run(
                    self.found.path,
                    executor=ProcessExecutor(os.cpu_count() or 1, isolated=True),
                    progress=self._progress,
                )
                make_snapshot(self._run, self._scratch, self._hardware)
                self.state = ReadState(EXAMINING)
                self._diagnose(self._run)
                self.state = ReadState(READY)
        except PacelineError as error:
            self.state = ReadState(FAILED, message=str(error), hint=error.hint)
        except Exception as error:  # nothing above this thread catches it: the page must show why the run failed
            _log.exception("reading %s failed", self.found.name)
            problem = ServerError("files_changed", error=_one_line(error))
            self.state = ReadState(FAILED, message=str(problem), hint=problem.hint)

    def precompute(self) -> None:
        """Compute what the first what-if or comparison would otherwise wait for."""
        if not self.diagnoses or self.state.phase != READY:
            return
        try:
            with self._lock:
                _ = self.context.replay.base, self.context.excess
                _ = self.measured
        except PacelineError as error:
            # The request that needs it gets the same error.
            _log.info("%s: %s", self.found.name, error)

    def prepare_timeline(self) -> None:
        """Read the events and lay them out in lanes."""
        try:
            with self._lock:
                self.timeline_state = ReadState(READING)
                run = self._ready()
                run.load(["events"])
                self.timeline_state = ReadState(EXAMINING)
                self._lanes = build_lanes(run, self._scratch)
                self.timeline_state = ReadState(READY)
        except PacelineError as error:
            self.timeline_state = ReadState(FAILED, message=str(error), hint=error.hint)
        except Exception as error:  # as above
            _log.exception("the timeline of %s failed", self.found.name)
            self.timeline_state = ReadState(FAILED, message=_one_line(error))

    def _check_links(self) -> None:
        """Refuse a run whose symbolic links lead outside the served directory."""
        tree = walk(self.found.path)
        allowed = inside(tree, self._base)
        if len(allowed.files) < len(tree.files):
            raise ServerError("link_outside", name=self.found.name, link=str(allowed.unreadable[-1]))

    def _progress(self, now: ReadProgress) -> None:
        if self.state.phase == READING:
            self.state = replace(self.state, done=now.done, total=now.total)
        elif self.timeline_state.phase == READING:
            self.timeline_state = replace(self.timeline_state, done=now.done, total=now.total)

    def _diagnose(self, run: Run) -> None:
        try:
            examination = examine(run, hardware=self._hardware)
            self.diagnoses = {language: in_words(examination, language) for language in LANGUAGES}
        except UsageError as error:
            # A recording without steps is shown too; the page says why there is no diagnosis.
            self.undiagnosed = str(error)
        hardware = self._hardware
        report = report_data(run, self.diagnoses, nominal=hardware.nominal_speeds, capacity_for=hardware.memory_for)
        self._documents = {language: self._document(report, language) for language in LANGUAGES}
        self._lazy_tables = {
            part: _compressed(ReportTables({name: pack_table(report.tables[name]) for name in names}))
            for part, names in LAZY_TABLES.items()
        }

    def _document(self, report: ReportData, language: Language) -> bytes:
        tables = {name: table for name, table in report.tables.items() if name not in _NOT_IN_OVERVIEW}
        shown = report_document(replace(report, tables=tables, source=self.found.name), language)
        return _compressed(
            ServedReport(run=self.found.id, undiagnosed=self.undiagnosed, **msgspec.structs.asdict(shown))
        )

    # -- for requests ------------------------------------------------------------------------------------------------

    def report(self, language: Language) -> bytes:
        """What all pages of a run share, as compressed JSON: schema "paceline.report/1"."""
        self._ready()
        return self._documents[language]

    def findings(self, language: Language) -> tuple[Finding, ...]:
        """None where nothing could be diagnosed."""
        return self.diagnoses[language].findings if self.diagnoses else ()

    def lazy_tables(self, name: str) -> bytes:
        """The tables of one section (LAZY_TABLES), as compressed JSON."""
        self._ready()
        return self._lazy_tables[name]

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        run = self._ready()
        self.last_used = time.monotonic()
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
    def context(self) -> DiagnosisContext:
        """The input of the replay; use it inside `exclusive`."""
        return DiagnosisContext(self._ready(), hardware=self._hardware)

    @cached_property
    def measured(self) -> Measured:
        """What is compared with other runs; use it inside `exclusive`."""
        return measure(self._ready())

    def exclusive(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which uses the Run itself, under its lock."""
        self._ready()
        self.users += 1
        try:
            with self._lock:
                return work()
        finally:
            self.users -= 1

    def cached_result(self, key: tuple[str, ...], work: Callable[[], Result]) -> Result:
        """The result kept under `key`, computed the first time."""
        known = self._results.get(key)
        if known is None:
            known = self.exclusive(work)
            if len(self._results) >= MOST_RESULTS:
                self._results.pop(next(iter(self._results)))
            self._results[key] = known
        return known  # type: ignore[return-value]

    def close(self) -> None:
        with self._lock:
            if self._run is not None:
                self._run.close()
            self._run = None
        self._open.close()

    def _ready(self) -> Run:
        if self.state.phase != READY or self._run is None:
            raise NotReadyError(self.state)
        return self._run


def _compressed(value: msgspec.Struct) -> bytes:
    return gzip.compress(msgspec.json.encode(value), compresslevel=3)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class RunCache:
    """The cached runs; one background thread reads them one after the other."""

    def __init__(self, base: Path, hardware: Hardware) -> None:
        self._base, self._hardware = base, hardware
        self._runs: dict[str, CachedRun] = {}
        self._closed: dict[str, tuple[FoundRun, dict[Language, Diagnosis]]] = {}
        self._lock = threading.Lock()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="paceline-read")

    def get(self, run_id: str) -> CachedRun | None:
        return self._runs.get(run_id)

    def diagnoses(self, found: FoundRun) -> dict[Language, Diagnosis]:
        """What a run's diagnosis was in every language, also after it was closed; empty if its files changed since."""
        run = self.get(found.id)
        if run is not None:
            return run.diagnoses
        before, diagnoses = self._closed.get(found.id, (found, {}))
        return diagnoses if before.fingerprint == found.fingerprint else {}

    def open(self, found: FoundRun, *, again: bool = False) -> CachedRun:
        """Open a run unless it is open; `again` reads its files again."""
        with self._lock:
            known = self._runs.get(found.id)
            if known is not None and not again and known.state.phase != FAILED:
                return known
            self._evict(MOST_OPEN - 1)
            run = self._runs[found.id] = CachedRun(found, self._base, self._hardware)
        if known is not None:
            self._reader.submit(known.close)
        self._reader.submit(run.read)
        self._reader.submit(run.precompute)
        self._reader.submit(self._trim)
        return run

    def open_timeline(self, run: CachedRun) -> None:
        """Read the timeline once; one that failed stays failed until the run is read again."""
        with self._lock:
            if run.timeline_state.phase != FOUND:
                return
            run.timeline_state = ReadState(QUEUED)
        self._reader.submit(run.prepare_timeline)

    def close(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def _trim(self) -> None:
        """Many runs may have been opened at once: those that were read first are closed."""
        with self._lock:
            self._evict(MOST_OPEN)

    def _evict(self, keep: int) -> None:
        idle = sorted((run for run in self._runs.values() if not run.users), key=lambda run: run.last_used)
        for run in idle[: max(0, len(self._runs) - keep)]:
            if run.state.phase in (READY, FAILED):
                del self._runs[run.found.id]
                self._closed[run.found.id] = (run.found, run.diagnoses)
                self._reader.submit(run.close)
