"""Incremental reading of a job's log files."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from paceline.jobs.backend import JobHandle, LogPiece

_MOST = 8_000_000
"""Bytes read at once: a job that prints gigabytes is shown in pieces."""


class LogTail:
    """Remembers how far each worker's file was read; an incomplete UTF-8 character is kept for the next read."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._decoders: dict[Path, codecs.IncrementalDecoder] = {}

    def new(self, handle: JobHandle) -> list[LogPiece]:
        found: list[LogPiece] = []
        for worker, path in worker_logs(handle):
            while text := self._more(path):
                found.append(LogPiece(worker, text))
        return found

    def _more(self, path: Path) -> str:
        decoder = self._decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read(_MOST)
        self._read[path] = self._read.get(path, 0) + len(data)
        return decoder.decode(data)


def worker_logs(handle: JobHandle) -> list[tuple[int, Path]]:
    """Worker numbers and their existing log files."""
    pattern = re.compile(re.escape(handle.log_name(0)).replace(r"worker\-0", r"worker\-(\d+)"))
    found = [(int(match[1]), path) for path in handle.logs.glob("*.log") if (match := pattern.fullmatch(path.name))]
    return sorted(found)
