"""The end of a session: own checkpoints, then what belongs to the host, from wherever it was written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from paceline.training.courier import Move
from paceline.training.meeting import Meeting
from paceline.training.staging import Staging
from paceline.training.telling import log
from paceline.training.uploads import Leftover, Uploader

PLOG = Path("/root/ascend/log")
_ELSEWHERE = (("/cache/debug", "debug_info"), ("/cache/profile", "profile"))
_FOR_OTHERS = 0.5
"""Of the deadline: how long the first rank of a host waits for the others to finish writing."""


def bring_home(uploader: Uploader, meeting: Meeting | None, *, deadline: float, since: float) -> list[Leftover]:
    """What did not make it."""
    until = time.monotonic() + deadline

    def rest() -> list[Move]:
        if not _speaks(uploader, meeting):
            return []
        seconds = (until - time.monotonic()) * _FOR_OTHERS
        alive = meeting.wait_for_others(seconds) if meeting is not None else set()
        return list(_of_host(uploader, meeting, alive, since))

    return uploader.finish(until, rest)


def _speaks(uploader: Uploader, meeting: Meeting | None) -> bool:
    """The first rank of a host; when that is dead, the first one that lives."""
    if uploader.ranks.is_leader:
        return True
    if meeting is None or not meeting.leader_is_gone:
        return False
    return not any(rank < uploader.ranks.rank for rank in meeting.alive())


def _of_host(uploader: Uploader, meeting: Meeting | None, alive: set[int], since: float) -> Iterator[Move]:
    root, url, ranks = uploader.outputs.root, uploader.url, uploader.ranks
    if meeting is not None:
        # Ranks that were killed cannot send their own.
        for rank in ranks.local:
            if rank != ranks.rank and rank not in alive:
                yield from Staging(root, url, rank, ranks.world_size).moves(keep_last=False)
    yield Move(str(root), url, "rest")
    yield from _new_files(_plog(), f"{url}/ascend-log/plog/node_{ranks.rank - ranks.local_rank}", since)
    for place, name in _ELSEWHERE:
        yield from _new_files(Path(place), f"{url}/{name}", since)
    dump = dump_path()
    if dump is not None and dump.is_dir() and not dump.is_relative_to(root):
        yield Move(str(dump), f"{url}/dump")


def dump_path() -> Path | None:
    """Where MindSpore was told to dump tensors (MINDSPORE_DUMP_CONFIG names a JSON file)."""
    config = os.environ.get("MINDSPORE_DUMP_CONFIG")
    if not config:
        return None
    try:
        path = json.loads(Path(config).read_text())["common_dump_settings"]["path"]
        return Path(path) if Path(path).is_absolute() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("MINDSPORE_DUMP_CONFIG=%s cannot be read (%s): its dump is not brought home", config, error)
        return None


def _plog() -> Path:
    return Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or PLOG)


def _new_files(place: Path, target: str, since: float) -> Iterator[Move]:
    """Of a place other jobs write to as well: what changed since the session began."""
    if not place.is_dir():
        return
    keys = []
    for path in place.rglob("*"):
        try:
            if path.is_file() and path.stat().st_mtime >= since - 1:
                keys.append(path.relative_to(place).as_posix())
        except OSError:
            continue  # rotated away while we looked
    if keys:
        yield Move(str(place), target, keys=tuple(sorted(keys)))
