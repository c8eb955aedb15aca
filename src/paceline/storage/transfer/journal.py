"""Journal of a transfer: what is done, so that the next run transfers only what is missing.

One JSON object per line, appended; an incomplete last line is ignored. Losing the journal costs time, never data:
every entry is compared with the stores before it is used.

    {"done": key, "from": fingerprint, "to": fingerprint}
    {"begun": key, "from": fingerprint, "state": upload id}
    {"part": key, "number": n, "sum": checksum}
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

from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.store_errors import StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import UnfinishedUpload

_log = logging.getLogger(__name__)
_COMPACT_ABOVE = 4 << 20
_LINES_AT_ONCE = 64
"""Entries of finished files that are written together."""


class Journal:
    """Locked by one process at a time; a second one waits for the first."""

    def __init__(self, source: str, target: str) -> None:
        self.path = cache_part("transfers") / f"{cache_name(f'{source} → {target}')}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except OSError as error:
            raise StorageError(
                f"{self.path.parent}: {error.strerror}", hint="set PACELINE_CACHE to a writable directory"
            ) from error
        self._lock = threading.Lock()
        self._unwritten: list[bytes] = []
        self._broken = False
        self._done: dict[str, tuple[str, str]] = {}
        self._uploads: dict[str, tuple[str, str]] = {}
        self._parts: dict[str, dict[int, str]] = {}
        for line in self.path.read_bytes().splitlines():
            self._replay(line)
        if self.path.stat().st_size > _COMPACT_ABOVE:
            with suppress(OSError):  # no space for a shorter journal: the long one still works
                self._compact()

    def is_done(self, source: StoredFile, target: StoredFile) -> bool:
        return self._done.get(source.key) == (source.fingerprint, target.fingerprint)

    def record_done(self, moved: Iterable[tuple[StoredFile, StoredFile]]) -> None:
        """Record pairs of source and target file. Entries lost in a crash are recovered from checksums at the target."""
        entries = [
            {"done": source.key, "from": source.fingerprint, "to": target.fingerprint} for source, target in moved
        ]
        lines = [_line(entry) for entry in entries]
        with self._lock:
            for entry in entries:
                self._apply(entry)
            self._unwritten += lines
            if len(self._unwritten) >= _LINES_AT_ONCE:
                self._flush()

    def unfinished_upload(self, source: StoredFile) -> UnfinishedUpload | None:
        """An upload of exactly this version of the file that did not complete."""
        upload = self._uploads.get(source.key)
        if upload is None or upload[0] != source.fingerprint:
            return None
        return UnfinishedUpload(upload[1], dict(self._parts.get(source.key, {})))

    def record_upload(self, source: StoredFile, upload_id: str) -> None:
        self._append({"begun": source.key, "from": source.fingerprint, "state": upload_id})

    def record_part(self, source: StoredFile, number: int, checksum: str) -> None:
        self._append({"part": source.key, "number": number, "sum": checksum})

    def forget_upload(self, source: StoredFile) -> None:
        """Discard what is known of an unfinished upload, because it proved wrong."""
        self._append({"begun": source.key, "from": "", "state": ""})

    def close(self) -> None:
        with self._lock:
            self._flush()
        os.close(self._file)

    def _open(self) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # The process that held the lock may have replaced the file while we waited.
            if os.fstat(file).st_ino == self.path.stat().st_ino:
                return file
            os.close(file)

    def _append(self, entry: dict[str, Any]) -> None:
        line = _line(entry)
        with self._lock:
            self._apply(entry)
            self._unwritten.append(line)
            self._flush()

    def _flush(self) -> None:
        """A full disk here must not fail a transfer to another place: it only costs the next run time."""
        lines, self._unwritten = b"".join(self._unwritten), []
        if self._broken:
            return
        try:
            os.write(self._file, lines)
        except OSError as error:
            self._broken = True
            _log.warning(
                "%s: cannot be written (%s); the next run has to compare all files again", self.path, error.strerror
            )

    def _replay(self, line: bytes) -> None:
        try:
            self._apply({name: _unescape(value) for name, value in msgspec.json.decode(line).items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # incomplete after a crash: that part is transferred again

    def _apply(self, entry: dict[str, Any]) -> None:
        if "done" in entry:
            key = entry["done"]
            self._done[key] = (entry["from"], entry["to"])
            self._uploads.pop(key, None)
            self._parts.pop(key, None)
        elif "begun" in entry:
            self._uploads[entry["begun"]] = (entry["from"], entry["state"])
            self._parts[entry["begun"]] = {}
        elif "part" in entry:
            self._parts.setdefault(entry["part"], {})[int(entry["number"])] = entry["sum"]

    def _compact(self) -> None:
        shorter = self.path.with_suffix(".new")
        with shorter.open("wb") as out:
            for key, (source, target) in self._done.items():
                out.write(_line({"done": key, "from": source, "to": target}))
            for key, (source, upload_id) in self._uploads.items():
                out.write(_line({"begun": key, "from": source, "state": upload_id}))
                for number, checksum in self._parts.get(key, {}).items():
                    out.write(_line({"part": key, "number": number, "sum": checksum}))
        file = os.open(shorter, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.replace(shorter, self.path)
        os.close(self._file)
        self._file = file


def _line(entry: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(entry) + b"\n"
    except UnicodeEncodeError:
        # JSON holds only valid Unicode, a file name may hold lone surrogates (undecodable bytes, or a name from a
        # Windows server): such texts are written as hexadecimal, marked by a NUL, which no name can contain.
        escaped = {name: _escape(value) if isinstance(value, str) else value for name, value in entry.items()}
        return msgspec.json.encode(escaped) + b"\n"


def _escape(text: str) -> str:
    return "\0" + text.encode(errors="surrogatepass").hex()


def _unescape(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("\0"):
        return bytes.fromhex(value[1:]).decode(errors="surrogatepass")
    return value
