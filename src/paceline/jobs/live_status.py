"""The status of many jobs at once, asked from their backends; who does not answer in time keeps the last known one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from paceline.core.errors import PacelineError
from paceline.core.waiting import waiting_for
from paceline.jobs.backends import backend_for
from paceline.jobs.job_registry import JobRecord, save_record

PATIENCE = 10.0
"""Seconds for all of them together."""
_AT_ONCE = 8


def with_live_status(records: Sequence[JobRecord], seconds: float = PATIENCE) -> list[JobRecord]:
    """The same records; those that were asked just now are `checked` now, others keep their old time."""
    open_ones = [record for record in records if not _has_ended(record)]
    if not open_ones:
        return list(records)
    fresh: dict[str, JobRecord] = {}
    lock = threading.Lock()

    def ask(record: JobRecord) -> None:
        found = _asked(record)
        if found is not None:
            with lock:
                fresh[record.handle.id] = found

    backends = ", ".join(sorted({record.handle.backend for record in open_ones}))
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="status")
    try:
        with waiting_for(f"the status of {len(open_ones)} job{'s' if len(open_ones) > 1 else ''} ({backends})"):
            until = time.monotonic() + seconds
            for future in [pool.submit(ask, record) for record in open_ones]:
                try:
                    future.result(max(0.0, until - time.monotonic()))
                except TimeoutError:
                    break
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    with lock:
        return [fresh.get(record.handle.id, record) for record in records]


def running_records(records: Sequence[JobRecord]) -> list[JobRecord]:
    """Those that have not ended, as far as their backends say."""
    return [record for record in with_live_status(records) if not _has_ended(record)]


def _asked(record: JobRecord) -> JobRecord | None:
    if not record.handle.remote_id and record.handle.backend != "local":
        return None  # its submission was interrupted: `job follow` finds out
    try:
        status = backend_for(record.handle).status(record.handle)
    except PacelineError:
        return None
    if status != record.status:
        save_record(record.handle, status)
    return msgspec.structs.replace(record, status=status, checked=time.time())


def _has_ended(record: JobRecord) -> bool:
    return record.status is not None and record.status.finished and record.status.phase.value != "lost"
