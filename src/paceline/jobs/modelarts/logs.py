"""Download workers' logs from ModelArts into log/: incrementally, and completely from the bucket at the end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.jobs.backend import JobHandle
from paceline.jobs.modelarts.client import TrainingJobClient
from paceline.storage.store_errors import MissingError
from paceline.storage.stores.base import Store
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import TransferOptions, transfer

_OFFSETS = ".synced.json"


class _Synced(msgspec.Struct, frozen=True):
    """How much of a worker's log was downloaded."""

    there: int = 0
    here: int = 0
    """Size of our file after that; longer means that a process was killed while writing."""


def sync_worker_logs(client: TrainingJobClient, handle: JobHandle, tasks: list[str]) -> None:
    """Append each worker's new lines; two processes that follow the same job do not write them twice."""
    with _locked(handle.logs):
        seen = _seen(handle.logs)
        for number, task in enumerate(tasks):
            path, synced = handle.logs / handle.log_name(number), seen.get(task, _Synced())
            try:
                new, there = _from_preview(client, handle, task, synced.there)
            except MissingError:
                new, there = _from_bucket(handle, number, synced.there)
            seen[task] = _Synced(there, _append(path, new, synced.here))
            atomic_write_text(handle.logs / _OFFSETS, msgspec.json.encode(seen).decode())


def fetch_complete_logs(handle: JobHandle, tasks: list[str]) -> None:
    """Download the bucket's copies, which are complete where the preview was too short; needs log_url."""
    if not handle.log_url:
        return
    with _locked(handle.logs), _store(handle.log_url) as store:
        seen = _seen(handle.logs)
        for number, task in enumerate(tasks):
            name = handle.log_name(number)
            item = store.stat(name)
            path = handle.logs / name
            if item is not None and item.size > (path.stat().st_size if path.exists() else -1):
                only = TransferOptions(file_filter=lambda key, name=name: key == name)  # type: ignore[misc]
                transfer(handle.log_url, handle.logs, only).raise_failures()
                seen[task] = _Synced(item.size, item.size)
        atomic_write_text(handle.logs / _OFFSETS, msgspec.json.encode(seen).decode())


def _append(path: Path, new: bytes, size: int) -> int:
    with path.open("ab") as file:
        file.truncate(size)
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
    return size + len(new)


def _from_preview(client: TrainingJobClient, handle: JobHandle, task: str, seen: int) -> tuple[bytes, int]:
    preview = client.log(handle.remote_id, task)
    if preview.full_size < seen:
        return b"--- the worker was restarted ---\n" + preview.content, preview.full_size
    missing = preview.full_size - seen
    if missing > len(preview.content):
        gap = f"--- {missing - len(preview.content):,} bytes missing: the preview shows the end only ---\n"
        return gap.encode() + preview.content, preview.full_size
    return preview.content[len(preview.content) - missing :], preview.full_size


def _from_bucket(handle: JobHandle, number: int, seen: int) -> tuple[bytes, int]:
    if not handle.log_url:
        return b"", seen
    with _store(handle.log_url) as store:
        item = store.stat(handle.log_name(number))
        if item is None or item.size <= seen:
            return b"", seen
        return bytes(store.read(item, seen, item.size - seen)), item.size


def _seen(logs: Path) -> dict[str, _Synced]:
    try:
        return msgspec.json.decode((logs / _OFFSETS).read_bytes(), type=dict[str, _Synced])
    except FileNotFoundError:
        return {}


@contextmanager
def _locked(logs: Path) -> Iterator[None]:
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _store(url: str) -> Iterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()
