"""Workers' logs from ModelArts into log/, only what is new; at the end whole from the bucket."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from paceline.jobs.backend import JobHandle
from paceline.jobs.modelarts.cloud import Cloud
from paceline.storage.opening import open_store
from paceline.storage.store import MissingError, Store
from paceline.storage.transfer import Options, transfer
from paceline.whole import write_whole

_OFFSETS = ".synced.json"


class _Synced(msgspec.Struct, frozen=True):
    """How far a worker's log was brought."""

    there: int = 0
    here: int = 0
    """Size of our file then; what is longer was being written when somebody was killed."""


def pull(cloud: Cloud, handle: JobHandle, tasks: list[str]) -> None:
    """Append what each worker said since; two followers at once do not write the same lines twice."""
    with _alone(handle.logs):
        seen = _seen(handle.logs)
        for number, task in enumerate(tasks):
            path, synced = handle.logs / handle.log_name(number), seen.get(task, _Synced())
            try:
                new, there = _from_preview(cloud, handle, task, synced.there)
            except MissingError:
                new, there = _from_bucket(handle, number, synced.there)
            seen[task] = _Synced(there, _append(path, new, synced.here))
            write_whole(handle.logs / _OFFSETS, msgspec.json.encode(seen).decode())


def fetch_whole(handle: JobHandle, tasks: list[str]) -> None:
    """The bucket's copies, complete even where the preview was too short; nothing where no logs are kept there."""
    if not handle.log_url:
        return
    with _alone(handle.logs), _store(handle.log_url) as store:
        seen = _seen(handle.logs)
        for number, task in enumerate(tasks):
            name = handle.log_name(number)
            item = store.stat(name)
            path = handle.logs / name
            if item is not None and item.size > (path.stat().st_size if path.exists() else -1):
                only = Options(rule=lambda key, name=name: key == name)  # type: ignore[misc]
                transfer(handle.log_url, handle.logs, only).raise_failures()
                seen[task] = _Synced(item.size, item.size)
        write_whole(handle.logs / _OFFSETS, msgspec.json.encode(seen).decode())


def _append(path: Path, new: bytes, size: int) -> int:
    with path.open("ab") as file:
        file.truncate(size)
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
    return size + len(new)


def _from_preview(cloud: Cloud, handle: JobHandle, task: str, seen: int) -> tuple[bytes, int]:
    preview = cloud.log(handle.remote_id, task)
    if preview.full_size < seen:
        return b"--- the worker was started again ---\n" + preview.content, preview.full_size
    missing = preview.full_size - seen
    if missing > len(preview.content):
        gap = f"--- {missing - len(preview.content):,} bytes left out: the preview shows the end only ---\n"
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
def _alone(logs: Path) -> Iterator[None]:
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
