"""What a transfer has done so far, so that the next run moves only what is missing.

One line per fact, appended; a torn last line is ignored. Losing the journal costs time, never data: everything it
says is checked against the stores before it is believed.

    {"done": key, "from": fingerprint, "to": fingerprint}
    {"begun": key, "from": fingerprint, "state": …}          a large file, and how its store finds it again
    {"part": key, "number": n, "sum": …}
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from paceline.storage.cache import cache_name, cache_root
from paceline.storage.store import Item, Resume, StorageError

_log = logging.getLogger(__name__)
_COMPACT_ABOVE = 4 << 20
_LINES_AT_ONCE = 64
"""Finished files written together."""


class Journal:
    """Held by one process at a time; a second one waits for the first."""

    def __init__(self, source: str, target: str) -> None:
        self.path = cache_root() / "transfers" / f"{cache_name(f'{source} → {target}')}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except OSError as error:
            raise StorageError(
                f"{self.path.parent}: {error.strerror}", hint="set PACELINE_CACHE to a directory that can be written"
            ) from error
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._lost = False
        self._done: dict[str, tuple[str, str]] = {}
        self._begun: dict[str, tuple[str, str]] = {}
        self._parts: dict[str, dict[int, str]] = {}
        for line in self.path.read_bytes().splitlines():
            self._replay(line)
        if self.path.stat().st_size > _COMPACT_ABOVE:
            with suppress(OSError):  # no room for a shorter one: the long one still serves
                self._compact()

    def is_done(self, source: Item, target: Item) -> bool:
        return self._done.get(source.key) == (source.fingerprint, target.fingerprint)

    def done(self, moved: Iterable[tuple[Item, Item]]) -> None:
        """Files with what they became; those a crash forgets are found at the target by their checksums."""
        facts = [{"done": source.key, "from": source.fingerprint, "to": target.fingerprint} for source, target in moved]
        lines = [_line(fact) for fact in facts]
        with self._lock:
            for fact in facts:
                self._remember(fact)
            self._waiting += lines
            if len(self._waiting) >= _LINES_AT_ONCE:
                self._flush()

    def resume(self, source: Item) -> Resume | None:
        """An upload of exactly this version that did not finish."""
        begun = self._begun.get(source.key)
        if begun is None or begun[0] != source.fingerprint:
            return None
        return Resume(begun[1], dict(self._parts.get(source.key, {})))

    def begun(self, source: Item, state: str) -> None:
        self._append({"begun": source.key, "from": source.fingerprint, "state": state})

    def part(self, source: Item, number: int, checksum: str) -> None:
        self._append({"part": source.key, "number": number, "sum": checksum})

    def forget(self, source: Item) -> None:
        """What is known of an unfinished upload turned out wrong."""
        self._append({"begun": source.key, "from": "", "state": ""})

    def close(self) -> None:
        with self._lock:
            self._flush()
        os.close(self._file)

    def _open(self) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held the lock may have replaced the file while we waited.
            if os.fstat(file).st_ino == self.path.stat().st_ino:
                return file
            os.close(file)

    def _append(self, fact: dict[str, Any]) -> None:
        line = _line(fact)
        with self._lock:
            self._remember(fact)
            self._waiting.append(line)
            self._flush()

    def _flush(self) -> None:
        """A full disk here is no reason to fail what goes elsewhere: it costs the next run time."""
        lines, self._waiting = b"".join(self._waiting), []
        if self._lost:
            return
        try:
            os.write(self._file, lines)
        except OSError as error:
            self._lost = True
            _log.warning("%s: %s; the next run has to look at everything again", self.path, error.strerror)

    def _replay(self, line: bytes) -> None:
        try:
            self._remember({name: _original(value) for name, value in msgspec.json.decode(line).items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # torn by a crash: that piece is simply moved again

    def _remember(self, fact: dict[str, Any]) -> None:
        if "done" in fact:
            key = fact["done"]
            self._done[key] = (fact["from"], fact["to"])
            self._begun.pop(key, None)
            self._parts.pop(key, None)
        elif "begun" in fact:
            self._begun[fact["begun"]] = (fact["from"], fact["state"])
            self._parts[fact["begun"]] = {}
        elif "part" in fact:
            self._parts.setdefault(fact["part"], {})[int(fact["number"])] = fact["sum"]

    def _compact(self) -> None:
        fresh = self.path.with_suffix(".new")
        with fresh.open("wb") as out:
            for key, (source, target) in self._done.items():
                out.write(_line({"done": key, "from": source, "to": target}))
            for key, (source, state) in self._begun.items():
                out.write(_line({"begun": key, "from": source, "state": state}))
                for number, checksum in self._parts.get(key, {}).items():
                    out.write(_line({"part": key, "number": number, "sum": checksum}))
        file = os.open(fresh, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.replace(fresh, self.path)
        os.close(self._file)
        self._file = file


def _line(fact: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(fact) + b"\n"
    except UnicodeEncodeError:
        # Names here may be any bytes, JSON holds only text. No name begins with a NUL.
        plain = {
            name: "\0" + os.fsencode(value).hex() if isinstance(value, str) else value for name, value in fact.items()
        }
        return msgspec.json.encode(plain) + b"\n"


def _original(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("\0"):
        return os.fsdecode(bytes.fromhex(value[1:]))
    return value
