"""Directories of this machine as a store: written beside, synced, renamed; nothing half-visible."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.storage.checksum import composite, md5, part_count
from paceline.storage.crowd import Crowds, names
from paceline.storage.direct import DirectFile
from paceline.storage.disk import discard, explained, item_of, meaning, reserve, write_all, write_new
from paceline.storage.shared_sync import can_sync_whole
from paceline.storage.store import ChangedError, Content, Data, Item, Resume, StorageError, Sum, partial_name

_BLOCK = 1 << 20
_CROWD = 4
"""From here on, files are synced together."""


class FileStore:
    local = True
    batch = 1
    checks_on_read = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._crowds = Crowds(str(root)) if can_sync_whole() else None

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        if self.root.is_dir():
            yield from _scan(self.root, "", shallow, ())

    def stat(self, key: str) -> Item | None:
        try:
            info = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return item_of(key, info) if self._path(key).is_file() else None

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        path = f"{self.root}/{item.key}"
        with explained(path):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(file, length, start)
                # Looked at after reading: a writer that was at work meanwhile has moved the time or the size.
                now = item_of(item.key, os.fstat(file))
            finally:
                os.close(file)
        if now != item or len(data) != length:
            raise ChangedError(f"{path}: changed while it was read", hint="run again when its writer has finished")
        return data

    def read_many(self, items: Sequence[Item]) -> Iterator[tuple[Item, Data]]:
        return ((item, self.read(item, 0, item.size)) for item in items)

    def write(self, key: str, data: Data, md5: str) -> Item:
        path, partial = names(str(self.root), key, md5)
        try:
            info = write_new(partial, data, sync=True)
            os.replace(partial, path)
        except OSError as error:
            discard(partial)
            raise meaning(path, error) from error
        return item_of(key, info)

    def write_many(self, files: Sequence[Content]) -> Iterator[Item]:
        if self._crowds is not None and len(files) >= _CROWD:
            return self._crowds.write(files)
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin(self, key: str, size: int, part: int, resume: Resume | None, total: Sum = md5) -> FileUpload:
        path = self._path(key)
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return FileUpload(path, key, size, part, resume.parts if resume else {}, total)

    def digest(self, item: Item, part: int | None) -> str | None:
        path = self._path(item.key)
        with explained(path), path.open("rb", buffering=0) as file:
            return _digest(file.fileno(), item.size, part)

    def crc32(self, item: Item) -> str | None:
        return None

    def part(self, item: Item) -> int | None:
        return None

    def vouches(self, item: Item) -> bool:
        return True

    def remove(self, key: str) -> None:
        with explained(self._path(key)):
            self._path(key).unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _path(self, key: str) -> Path:
        return self.root / key


class FileUpload:
    """Parts in a file beside the target; a lock keeps a second writer out."""

    def __init__(self, path: Path, key: str, size: int, part: int, known: Mapping[int, str], total: Sum) -> None:
        self._total = total
        self._path, self._key, self._size, self._part = path, key, size, part
        self._partial = path.with_name(partial_name(path.name, ""))
        self.state = self._partial.name
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            # What lies there may be older than the journal, or cut by a power failure: read it again.
            self.done = {n: known_sum for n, known_sum in known.items() if self._sum(n) == known_sum}
            reserve(self._file, size)
            self._direct = DirectFile(self._partial)
        except BaseException:
            os.close(self._file)
            raise

    def put(self, number: int, data: Data) -> str:
        with explained(self._path):
            start = number * self._part
            done = self._direct.write(data, start)
            write_all(self._file, memoryview(data)[done:], start + done)
        return self._total(data)

    def finish(self, sums: Sequence[str]) -> Item:
        with explained(self._path):
            os.fsync(self._file)
            os.replace(self._partial, self._path)
            self.leave()
            return item_of(self._key, self._path.stat())

    def digest(self, part: int | None) -> str | None:
        return _digest(self._file, self._size, part)

    def leave(self) -> None:
        self._direct.close()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{self._path}: another transfer is writing it", hint="wait for it, or stop it"
            ) from None

    def _sum(self, number: int) -> str:
        return self._total(os.pread(self._file, min(self._part, self._size - number * self._part), number * self._part))


def _scan(directory: Path, prefix: str, shallow: bool, above: tuple[tuple[int, int], ...]) -> Iterator[Item]:
    try:
        info = directory.stat()
        if (info.st_dev, info.st_ino) in above:
            return
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield Item(prefix or ".", 0, problem=f"cannot be listed: {error.strerror}")
        return
    for entry in entries:
        key = prefix + entry.name
        try:
            is_directory = entry.is_dir()
            found_item = item_of(key, entry.stat()) if not is_directory and entry.is_file() else None
        except FileNotFoundError:
            continue  # renamed or removed since the directory was read, as jobs do with what they have finished
        except OSError as error:
            yield Item(key, 0, problem=f"cannot be read: {error.strerror}")  # a link to itself, for one
            continue
        if found_item is not None:
            yield found_item
        elif is_directory and shallow:
            yield Item(key + "/", 0)
        elif is_directory:
            yield from _scan(Path(entry.path), key + "/", False, (*above, (info.st_dev, info.st_ino)))


def _digest(file: int, size: int, part: int | None) -> str:
    if part is None:
        return _md5_of(file, 0, size)
    return composite([_md5_of(file, n * part, part) for n in range(part_count(size, part))])


def _md5_of(file: int, start: int, length: int) -> str:
    if length <= 0:
        return md5(b"")
    found = hashlib.md5(usedforsecurity=False)
    while length > 0 and (block := os.pread(file, min(_BLOCK, length), start)):
        found.update(block)
        start, length = start + len(block), length - len(block)
    return found.hexdigest()
