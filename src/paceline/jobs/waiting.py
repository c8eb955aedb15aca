"""Following a job to its end, whatever happens to the network in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.jobs.backend import Backend, JobHandle, JobOutcome, JobStatus, LogPiece
from paceline.jobs.backends import backend_for
from paceline.jobs.log_tail import worker_logs
from paceline.jobs.record import remember
from paceline.storage.retry import Backoff
from paceline.storage.store import DeniedError, StorageError, TransientError
from paceline.whole import write_whole

OnLog = Callable[[LogPiece], None]
OnStatus = Callable[[JobStatus], None]
OnTrouble = Callable[[str], None]
_INTERVAL = {"local": 0.5, "slurm": 3.0, "modelarts": 10.0}


def wait(
    handle: JobHandle,
    *,
    on_log: OnLog | None = None,
    on_status: OnStatus | None = None,
    on_trouble: OnTrouble | None = None,
    interval: float | None = None,
) -> JobOutcome:
    """Poll until the job ends; logs are synced incrementally, and once more at the end whatever the outcome.

    A backend that cannot be reached says nothing of the job: it is asked again, ever more slowly, until it answers.
    """
    follower = _Follower(handle, backend_for(handle), on_log, on_trouble)
    every = interval if interval is not None else _INTERVAL[handle.backend]
    last: JobStatus | None = None
    while True:
        status = follower.status()
        if status != last:
            remember(handle, status)
            if on_status and (last is None or (status.phase, status.detail) != (last.phase, last.detail)):
                on_status(status)
            last = status
        follower.logs(last=status.finished)
        if status.finished:
            return _outcome(handle, status, follower.warnings)
        time.sleep(every)


class _Follower:
    """Asks a backend patiently; troubles are told once each time they begin."""

    def __init__(self, handle: JobHandle, backend: Backend, on_log: OnLog | None, on_trouble: OnTrouble | None) -> None:
        self._handle, self._backend = handle, backend
        self._on_log, self._tell = on_log, on_trouble
        self._answered = False
        self.warnings: list[str] = []

    def status(self) -> JobStatus:
        """The first answer has to come; later neither a lost network nor expired keys end the following."""
        backoff, attempt = Backoff(first=0.5, most=60.0), 0
        passing = (TransientError, DeniedError) if self._answered else (TransientError,)
        while True:
            try:
                found = self._backend.status(self._handle)
                self._answered = True
                return found
            except passing as error:
                if attempt == 0:
                    self._say(f"{_whole(error)}; the job goes on, asking again")
                time.sleep(backoff.wait(attempt, throttled=True))
                attempt += 1

    def logs(self, *, last: bool) -> None:
        """A log that cannot be fetched now is fetched later; at the end that is a warning, not a failed job."""
        try:
            for piece in self._backend.sync_logs(self._handle, last=last):
                if self._on_log:
                    self._on_log(piece)
        except StorageError as error:
            if last:
                self.warnings.append(f"the last logs could not be fetched: {error}")
            self._say(_whole(error))

    def _say(self, text: str) -> None:
        if self._tell:
            self._tell(text)


def _whole(error: StorageError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)


def _outcome(handle: JobHandle, status: JobStatus, warnings: list[str]) -> JobOutcome:
    outcome = JobOutcome(
        id=handle.id,
        name=handle.name,
        backend=handle.backend,
        status=status,
        submitted=handle.submitted,
        logs=tuple(str(path) for _, path in worker_logs(handle)),
        outputs=handle.outputs,
        warnings=(*handle.warnings, *warnings),
    )
    text = msgspec.json.format(msgspec.json.encode(outcome), indent=1).decode()
    write_whole(Path(handle.directory) / "outcome.json", text + "\n")
    return outcome
