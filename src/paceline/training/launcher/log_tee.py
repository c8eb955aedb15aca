"""Copy the logs of ranks to the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_READ_BYTES = 1 << 20


@dataclass
class _FollowedLog:
    name: str
    log: Path
    at: int
    rest: bytes = b""


class LogTee:
    """Copies new output; only complete lines if several ranks share the terminal."""

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._followed: list[_FollowedLog] = []

    def follow(self, name: str, log: Path, start: int) -> None:
        self._followed.append(_FollowedLog(name, log, start))

    def copy(self) -> None:
        for each in self._followed:
            while data := self._new(each):
                _print(self._lines(each, data) if self._prefixed else data)

    def _new(self, each: _FollowedLog) -> bytes:
        try:
            with each.log.open("rb") as file:
                file.seek(each.at)
                data = file.read(_READ_BYTES)
        except FileNotFoundError:
            return b""  # the log was removed; the job continues
        each.at += len(data)
        return data

    def _lines(self, each: _FollowedLog, data: bytes) -> bytes:
        *lines, each.rest = (each.rest + data).split(b"\n")
        return b"".join(f"[{each.name}] ".encode() + line + b"\n" for line in lines)


def _print(data: bytes) -> None:
    try:
        sys.stdout.write(data.decode(errors="replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the terminal is gone; the logs are complete
