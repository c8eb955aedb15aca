"""Uploader: background upload of outputs during training, and a final upload with a deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from paceline.core.errors import PacelineError
from paceline.storage.reachability import require_reachable
from paceline.training.background_thread import BackgroundThread
from paceline.training.monitor_status import MonitorStatus
from paceline.training.ranks import Ranks
from paceline.training.session.output_tree import OutputTree
from paceline.training.session.upload_messages import TransferTask
from paceline.training.session.upload_process import UploadProcess, UploadResult
from paceline.training.session.upload_staging import UploadStaging

_log = logging.getLogger("paceline.training")

_SHOWN = 20


@dataclass(frozen=True)
class Patience:
    """Retry times in seconds."""

    round: float = 15.0
    """How long one round retries a store that does not respond before the failure is reported."""
    longest_round: float = 6 * 3600.0
    pause: float = 5.0
    """Before the next round after a failed one; doubled up to `longest_pause`."""
    longest_pause: float = 60.0


@dataclass(frozen=True)
class Leftover:
    """A file that was not uploaded."""

    path: str
    reason: str


@dataclass
class Uploader:
    """Uploads of one process; `request` never blocks, and requests during an upload are combined into one more upload."""

    outputs: OutputTree
    url: str
    ranks: Ranks
    keep_last: bool = False
    patience: Patience = field(default_factory=Patience)
    _background: BackgroundThread = field(default_factory=lambda: BackgroundThread("paceline-upload"))
    _process: UploadProcess = field(default_factory=UploadProcess)
    _pending: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.status = MonitorStatus(self.outputs.log(self.ranks.rank), "obs-monitor")
        self.status.update(url=self.url)
        self._staging = UploadStaging(self.outputs.root, self.url, self.ranks.rank, self.ranks.world_size)

    def request(self) -> None:
        if self._closing.is_set():
            return
        self._pending.set()
        if not self._background.busy:
            self._background.start(self._run_rounds)

    def finish(self, until: float, more: Callable[[], Sequence[TransferTask]] = lambda: ()) -> list[Leftover]:
        """Upload everything of this rank, then `more()`; retries until `until` (monotonic clock)."""
        self._closing.set()
        self._process.stop()
        self._background.wait(10)
        self._background.close()
        self._process.reset()
        left = self._retry_until(lambda: self._staging.tasks(keep_last=self.keep_last), until)
        left += self._retry_until(lambda: list(more()), until)
        if not left:
            self._staging.clear()
        self.status.update(leftovers=[f"{each.path}: {each.reason}" for each in left])
        return left

    # -- during training ---------------------------------------------------------------------------------------------

    def _run_rounds(self) -> None:
        pause = self.patience.pause
        while self._pending.is_set() and not self._closing.is_set():
            self._pending.clear()
            try:
                problem = self._run_round()
            except (PacelineError, OSError) as error:
                problem = error if isinstance(error, PacelineError) else PacelineError(f"upload: {error}")
            if problem is None:
                pause = self.patience.pause
            elif not self._closing.is_set():
                self.status.failed(
                    problem,
                    consequence="training continues, files are kept locally and uploaded when it is possible again",
                )
                self._pending.set()
                self._closing.wait(pause)
                pause = min(pause * 2, self.patience.longest_pause)

    def _run_round(self) -> PacelineError | None:
        tasks = self._staging.tasks(keep_last=self.keep_last)
        if self.ranks.is_leader:
            tasks.append(TransferTask(str(self.outputs.root), self.url, "rest"))
        began = monotonic()
        result = self._process.run(tasks, patience=self.patience.round, seconds=self.patience.longest_round)
        problem = _problem(result, self.url)
        if problem is None:
            files = sum(each.moved for each in result.results)
            size = sum(each.moved_bytes for each in result.results)
            self.status.succeeded(files=files, bytes=size, seconds=round(monotonic() - began, 3))
        return problem

    # -- final upload ------------------------------------------------------------------------------------------------

    def _retry_until(self, tasks: Callable[[], Sequence[TransferTask]], until: float) -> list[Leftover]:
        pause = min(self.patience.pause, 1.0)
        left: list[Leftover] = []
        while True:
            try:
                pending = list(tasks())
            except OSError as error:
                return [Leftover(str(self.outputs.root), str(error))]
            if not pending:
                return []
            remaining = until - monotonic()
            if remaining > 0:
                result = self._process.run(pending, patience=min(remaining, self.patience.round), seconds=remaining)
                if result.complete:
                    return []
                left = _leftovers(result)
            else:
                left = left or [Leftover(task.source, "no time left before the deadline") for task in pending]
            if until - monotonic() <= pause:
                return left
            _log.warning("upload to %s is incomplete (%s); retrying", self.url, left[0].reason)
            sleep(pause)
            pause = min(pause * 2, 30.0)


def warn_if_unreachable(url: str) -> threading.Thread:
    """Training does not wait for its outputs' bucket; a warning says within seconds that it does not answer."""
    thread = threading.Thread(target=_warn_if_unreachable, args=(url,), name="paceline-outputs", daemon=True)
    thread.start()
    return thread


def _warn_if_unreachable(url: str) -> None:
    try:
        require_reachable(url)
    except PacelineError as error:
        _log.warning("outputs cannot be uploaded for now: %s; training continues\n  %s", error, error.hint or "")


def log_leftovers(left: Sequence[Leftover], url: str) -> None:
    shown = "\n".join(f"  {each.path}: {each.reason}" for each in left[:_SHOWN])
    more = f"\n  … and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    _log.error(
        "%d files were not uploaded to %s; they are kept locally (use paceline sync):\n%s%s",
        len(left),
        url,
        shown,
        more,
    )


def _problem(result: UploadResult, url: str) -> PacelineError | None:
    """None also if files were only being written: the next round uploads them."""
    for each in result.results:
        for failure in each.failures:
            if not failure.retry_later:
                where = f"{failure.key}: " if failure.key and failure.key not in failure.reason else ""
                return PacelineError(f"upload to {url} failed: {where}{failure.reason}", hint=each.hint or None)
    if result.unfinished:
        return PacelineError(f"upload to {url} failed: {result.reason}")
    return None


def _leftovers(result: UploadResult) -> list[Leftover]:
    found = [
        Leftover(f"{each.source}/{failure.key}".rstrip("/"), failure.reason)
        for each in result.results
        for failure in each.failures
    ]
    for task in result.unfinished:
        files = [path for path in Path(task.source).rglob("*") if path.is_file()] or [Path(task.source)]
        found += [Leftover(str(path), result.reason) for path in files[:100]]
    return found
