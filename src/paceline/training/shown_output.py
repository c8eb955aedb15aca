"""What ranks write into their logs, on the terminal too."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_AT_ONCE = 1 << 20


@dataclass
class _Followed:
    name: str
    log: Path
    at: int
    rest: bytes = b""


class Output:
    """Copies what is new; whole lines only where several ranks share the terminal."""

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._followed: list[_Followed] = []

    def follow(self, name: str, log: Path, start: int) -> None:
        self._followed.append(_Followed(name, log, start))

    def copy(self) -> None:
        for each in self._followed:
            while data := self._new(each):
                _print(self._lines(each, data) if self._prefixed else data)

    def _new(self, each: _Followed) -> bytes:
        try:
            with each.log.open("rb") as file:
                file.seek(each.at)
                data = file.read(_AT_ONCE)
        except FileNotFoundError:
            return b""  # somebody tidied the logs away; the job goes on
        each.at += len(data)
        return data

    def _lines(self, each: _Followed, data: bytes) -> bytes:
        *lines, each.rest = (each.rest + data).split(b"\n")
        return b"".join(f"[{each.name}] ".encode() + line + b"\n" for line in lines)


def _print(data: bytes) -> None:
    try:
        sys.stdout.write(data.decode(errors="replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # nobody looks any more; the logs have it all
