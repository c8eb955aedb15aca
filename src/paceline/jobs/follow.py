"""Follow a job to its end: poll status and logs, survive network failures, write outcome.json."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.jobs.backend import (
    JobBackend,
    JobHandle,
    JobOutcome,
    JobStatus,
    LogPiece,
    UtilisationSource,
    WorkerUtilisation,
)
from paceline.jobs.backends import backend_for
from paceline.jobs.job_registry import save_record
from paceline.jobs.log_tail import worker_logs
from paceline.storage.store_errors import DeniedError, StorageError, TransientError
from paceline.storage.transfer.retry import Backoff

OnLog = Callable[[LogPiece], None]
OnStatus = Callable[[JobStatus], None]
OnTrouble = Callable[[str], None]


def wait(
    handle: JobHandle,
    *,
    on_log: OnLog | None = None,
    on_status: OnStatus | None = None,
    on_trouble: OnTrouble | None = None,
    interval: float | None = None,
) -> JobOutcome:
    """Poll until the job ends; logs are synced incrementally, and once more at the end, also after a failure.

    While the backend cannot be reached, it is asked again with growing intervals, without limit.
    """
    backend = backend_for(handle)
    follower = _Follower(handle, backend, on_log, on_trouble)
    every = interval if interval is not None else backend.poll_seconds
    last: JobStatus | None = None
    while True:
        status = follower.status()
        if status != last:
            save_record(handle, status)
            if on_status and (last is None or (status.phase, status.detail) != (last.phase, last.detail)):
                on_status(status)
            last = status
        follower.logs(last=status.finished)
        if status.finished:
            utilisation = follower.utilisation()
            return _outcome(handle, status, follower.warnings, utilisation)
        time.sleep(every)


class _Follower:
    """Asks a backend with retries; a problem is reported once, when it begins."""

    def __init__(
        self, handle: JobHandle, backend: JobBackend, on_log: OnLog | None, on_trouble: OnTrouble | None
    ) -> None:
        self._handle, self._backend = handle, backend
        self._on_log, self._on_trouble = on_log, on_trouble
        self._answered = False
        self.warnings: list[str] = []

    def status(self) -> JobStatus:
        """The first request must succeed; later ones are retried after network failures and expired credentials."""
        backoff, attempt = Backoff(first_wait=0.5, longest_wait=60.0), 0
        retried = (TransientError, DeniedError) if self._answered else (TransientError,)
        while True:
            try:
                found = self._backend.status(self._handle)
                self._answered = True
                return found
            except retried as error:
                if attempt == 0:
                    self._report(f"{_with_hint(error)}; the job keeps running, retrying")
                time.sleep(backoff.wait(attempt, throttled=True))
                attempt += 1

    def logs(self, *, last: bool) -> None:
        """A log that cannot be fetched now is fetched later; at the end it becomes a warning, not a failed job."""
        try:
            for piece in self._backend.sync_logs(self._handle, last=last):
                if self._on_log:
                    self._on_log(piece)
        except StorageError as error:
            if last:
                self.warnings.append(f"the last logs could not be fetched: {error}")
            self._report(_with_hint(error))

    def utilisation(self) -> tuple[WorkerUtilisation, ...]:
        """What the service measured; a job without these numbers is complete."""
        if not isinstance(self._backend, UtilisationSource):
            return ()
        try:
            return self._backend.utilisation(self._handle)
        except StorageError as error:
            self.warnings.append(f"how the nodes were used is not known: {error}")
            return ()

    def _report(self, text: str) -> None:
        if self._on_trouble:
            self._on_trouble(text)


def _with_hint(error: StorageError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)


def _outcome(
    handle: JobHandle, status: JobStatus, warnings: list[str], utilisation: tuple[WorkerUtilisation, ...]
) -> JobOutcome:
    outcome = JobOutcome(
        id=handle.id,
        name=handle.name,
        backend=handle.backend,
        status=status,
        submitted=handle.submitted,
        logs=tuple(str(path) for _, path in worker_logs(handle)),
        outputs=handle.outputs,
        warnings=(*handle.warnings, *warnings),
        utilisation=utilisation,
    )
    text = msgspec.json.format(msgspec.json.encode(outcome), indent=1).decode()
    atomic_write_text(Path(handle.directory) / "outcome.json", text + "\n")
    return outcome
