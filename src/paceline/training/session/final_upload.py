"""Final upload of a session: the rank's checkpoints, then the host's outputs, device logs and dumps."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from paceline.training.session.host_leader import HostLeader
from paceline.training.session.upload_messages import TransferTask
from paceline.training.session.upload_staging import UploadStaging
from paceline.training.session.uploader import Leftover, Uploader

_log = logging.getLogger("paceline.training")

PLOG = Path("/root/ascend/log")
_EXTRA_DIRECTORIES = (("/cache/debug", "debug_info"), ("/cache/profile", "profile"))
_WAIT_FRACTION = 0.5
"""Fraction of the deadline that the first rank of a host waits for the others to finish writing."""


def upload_remaining(uploader: Uploader, leader: HostLeader | None, *, deadline: float, since: float) -> list[Leftover]:
    """Returns the files that could not be uploaded."""
    until = time.monotonic() + deadline

    def rest() -> list[TransferTask]:
        if not _uploads_host_files(uploader, leader):
            return []
        seconds = (until - time.monotonic()) * _WAIT_FRACTION
        alive = leader.wait_for_others(seconds) if leader is not None else set()
        return list(_host_tasks(uploader, leader, alive, since))

    return uploader.finish(until, rest)


def _uploads_host_files(uploader: Uploader, leader: HostLeader | None) -> bool:
    """True for the first rank of a host, or the first living rank if that one is dead."""
    if uploader.ranks.is_leader:
        return True
    if leader is None or not leader.leader_is_gone:
        return False
    return not any(rank < uploader.ranks.rank for rank in leader.alive_ranks())


def _host_tasks(uploader: Uploader, leader: HostLeader | None, alive: set[int], since: float) -> Iterator[TransferTask]:
    root, url, ranks = uploader.outputs.root, uploader.url, uploader.ranks
    if leader is not None:
        # Ranks that were killed cannot upload their own files.
        for rank in ranks.local:
            if rank != ranks.rank and rank not in alive:
                yield from UploadStaging(root, url, rank, ranks.world_size).tasks(keep_last=False)
    yield TransferTask(str(root), url, "rest")
    yield from _new_files(_plog(), f"{url}/ascend-log/plog/node_{ranks.rank - ranks.local_rank}", since)
    for directory, name in _EXTRA_DIRECTORIES:
        yield from _new_files(Path(directory), f"{url}/{name}", since)
    dump = dump_path()
    if dump is not None and dump.is_dir() and not dump.is_relative_to(root):
        yield TransferTask(str(dump), f"{url}/dump")


def dump_path() -> Path | None:
    """Directory of MindSpore's tensor dump, from the JSON file that MINDSPORE_DUMP_CONFIG names."""
    config = os.environ.get("MINDSPORE_DUMP_CONFIG")
    if not config:
        return None
    try:
        path = json.loads(Path(config).read_text())["common_dump_settings"]["path"]
        return Path(path) if Path(path).is_absolute() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("MINDSPORE_DUMP_CONFIG=%s cannot be read (%s): the dump is not uploaded", config, error)
        return None


def _plog() -> Path:
    return Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or PLOG)


def _new_files(directory: Path, target: str, since: float) -> Iterator[TransferTask]:
    """Files of a directory shared with other jobs that changed since the session started."""
    if not directory.is_dir():
        return
    keys = []
    for path in directory.rglob("*"):
        try:
            if path.is_file() and path.stat().st_mtime >= since - 1:
                keys.append(path.relative_to(directory).as_posix())
        except OSError:
            continue  # rotated away since the listing
    if keys:
        yield TransferTask(str(directory), target, keys=tuple(sorted(keys)))
