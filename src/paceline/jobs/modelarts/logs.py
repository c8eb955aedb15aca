"""Workers' logs from ModelArts into log/, only what is new; at the end whole from the bucket."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from paceline.jobs.backend import JobHandle
from paceline.jobs.modelarts.cloud import Cloud
from paceline.report.whole import write_whole
from paceline.storage.opening import open_store
from paceline.storage.store import MissingError, Store
from paceline.storage.transfer import Options, transfer

_OFFSETS = ".synced.json"


def pull(cloud: Cloud, handle: JobHandle, tasks: list[str]) -> None:
    """Append what each worker said since; two followers at once do not write the same lines twice."""
    with _alone(handle.logs):
        seen = _seen(handle.logs)
        for number, task in enumerate(tasks):
            path = handle.logs / handle.log_name(number)
            try:
                new, size = _from_preview(cloud, handle, task, seen.get(task, 0))
            except MissingError:
                new, size = _from_bucket(handle, number, seen.get(task, 0))
            if new:
                with path.open("ab") as file:
                    file.write(new)
            seen[task] = size
            # After every worker: what is in its file is never asked for again.
            write_whole(handle.logs / _OFFSETS, msgspec.json.encode(seen).decode())


def fetch_whole(handle: JobHandle, tasks: list[str]) -> None:
    """The bucket's copies, complete even where the preview was too short; nothing where no logs are kept there."""
    if not handle.log_url:
        return
    with _alone(handle.logs), _store(handle.log_url) as store:
        for number, _ in enumerate(tasks):
            name = handle.log_name(number)
            item = store.stat(name)
            path = handle.logs / name
            if item is not None and item.size > (path.stat().st_size if path.exists() else -1):
                only = Options(rule=lambda key, name=name: key == name)  # type: ignore[misc]
                transfer(handle.log_url, handle.logs, only).raise_failures()


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


def _seen(logs: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((logs / _OFFSETS).read_bytes(), type=dict[str, int])
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
