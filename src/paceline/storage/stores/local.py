"""Local directories as a store; files are written under a temporary name, synced, then renamed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.storage.checksum import Checksum, md5, multipart_etag, new_md5, part_count
from paceline.storage.local_io.batch_writer import BatchWriter, target_and_partial
from paceline.storage.local_io.direct_io import DirectFile
from paceline.storage.local_io.file_writes import preallocate, remove_partial, stored_file_of, write_all, write_new_file
from paceline.storage.local_io.group_commit import can_sync_filesystem
from paceline.storage.local_io.os_errors import to_storage_error, translate_os_errors
from paceline.storage.partial_files import partial_name
from paceline.storage.store_errors import ChangedError, StorageError
from paceline.storage.stored_file import Data, FileContent, StoredFile
from paceline.storage.stores.base import UnfinishedUpload
from paceline.storage.url import StorageUrl

_BLOCK = 1 << 20
_MIN_BATCH = 4
"""From this number of files on, they are synced together."""


def open_local_store(url: StorageUrl) -> FileStore:
    return FileStore(Path(url.path))


class FileStore:
    is_local = True
    read_batch_size = 1
    verify_reads = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._batch_writer = BatchWriter(str(root)) if can_sync_filesystem() else None

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        if self.root.is_dir():
            yield from _scan(self.root, "", recursive, ())

    def stat(self, key: str) -> StoredFile | None:
        try:
            info = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return stored_file_of(key, info) if self._path(key).is_file() else None

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        path = f"{self.root}/{item.key}"
        with translate_os_errors(path):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(file, length, start)
                # After reading: a concurrent writer has changed the modification time or the size by now.
                now = stored_file_of(item.key, os.fstat(file))
            finally:
                os.close(file)
        if now != item or len(data) != length:
            raise ChangedError(f"{path}: changed while it was read", hint="run again when it is completely written")
        return data

    def read_many(self, items: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, Data]]:
        return ((item, self.read(item, 0, item.size)) for item in items)

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        path, partial = target_and_partial(str(self.root), key, md5)
        try:
            info = write_new_file(partial, data, sync=True)
            os.replace(partial, path)
        except OSError as error:
            remove_partial(partial)
            raise to_storage_error(path, error) from error
        return stored_file_of(key, info)

    def write_many(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
        if self._batch_writer is not None and len(files) >= _MIN_BATCH:
            return self._batch_writer.write(files)
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin_upload(
        self, key: str, size: int, *, part_size: int, resume: UnfinishedUpload | None = None, checksum: Checksum = md5
    ) -> FileUpload:
        path = self._path(key)
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return FileUpload(
                path, key, size, part_size=part_size, known=resume.parts if resume else {}, checksum=checksum
            )

    def digest(self, item: StoredFile, part: int | None) -> str | None:
        path = self._path(item.key)
        with translate_os_errors(path), path.open("rb", buffering=0) as file:
            return _digest(file.fileno(), item.size, part)

    def crc32(self, item: StoredFile) -> str | None:
        return None

    def uploaded_part_size(self, item: StoredFile) -> int | None:
        return None

    def etag_is_checksum(self, item: StoredFile) -> bool:
        return True

    def remove(self, key: str) -> None:
        with translate_os_errors(self._path(key)):
            self._path(key).unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _path(self, key: str) -> Path:
        return self.root / key


class FileUpload:
    """An upload into a partial file in the target's directory, locked against a second writer."""

    def __init__(
        self, path: Path, key: str, size: int, *, part_size: int, known: Mapping[int, str], checksum: Checksum
    ) -> None:
        self._checksum = checksum
        self._path, self._key, self._size, self._part_size = path, key, size, part_size
        self._partial = path.with_name(partial_name(path.name, ""))
        self.upload_id = self._partial.name
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock_file()
            # The file may be older than the journal, or truncated by a power failure: read the parts again.
            self.stored_parts = {n: known_sum for n, known_sum in known.items() if self._checksum_of(n) == known_sum}
            preallocate(self._file, size)
            self._direct = DirectFile(self._partial)
        except BaseException:
            os.close(self._file)
            raise

    def put_part(self, number: int, data: Data) -> str:
        with translate_os_errors(self._path):
            start = number * self._part_size
            written = self._direct.write(data, start)
            write_all(self._file, memoryview(data)[written:], start + written)
        return self._checksum(data)

    def complete(self, sums: Sequence[str]) -> StoredFile:
        with translate_os_errors(self._path):
            os.fsync(self._file)
            os.replace(self._partial, self._path)
            self.abort()
            return stored_file_of(self._key, self._path.stat())

    def digest(self, part: int | None) -> str | None:
        return _digest(self._file, self._size, part)

    def abort(self) -> None:
        self._direct.close()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _lock_file(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{self._path}: another transfer is writing this file", hint="wait for that transfer, or stop it"
            ) from None

    def _checksum_of(self, number: int) -> str:
        start = number * self._part_size
        return self._checksum(os.pread(self._file, min(self._part_size, self._size - start), start))


def _scan(directory: Path, prefix: str, recursive: bool, above: tuple[tuple[int, int], ...]) -> Iterator[StoredFile]:
    try:
        info = directory.stat()
        if (info.st_dev, info.st_ino) in above:
            return
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield StoredFile(prefix or ".", 0, problem=f"cannot be listed: {error.strerror}")
        return
    for entry in entries:
        key = prefix + entry.name
        try:
            is_directory = entry.is_dir()
            found_item = stored_file_of(key, entry.stat()) if not is_directory and entry.is_file() else None
        except FileNotFoundError:
            continue  # renamed or removed since the directory was listed, as jobs do with finished files
        except OSError as error:
            yield StoredFile(key, 0, problem=f"cannot be read: {error.strerror}")  # for example a link to itself
            continue
        if found_item is not None:
            yield found_item
        elif is_directory and not recursive:
            yield StoredFile(key + "/", 0)
        elif is_directory:
            yield from _scan(Path(entry.path), key + "/", True, (*above, (info.st_dev, info.st_ino)))


def _digest(file: int, size: int, part: int | None) -> str:
    if part is None:
        return _md5_of(file, 0, size)
    return multipart_etag([_md5_of(file, n * part, part) for n in range(part_count(size, part))])


def _md5_of(file: int, start: int, length: int) -> str:
    if length <= 0:
        return md5(b"")
    found = new_md5()
    while length > 0 and (block := os.pread(file, min(_BLOCK, length), start)):
        found.update(block)
        start, length = start + len(block), length - len(block)
    return found.hexdigest()
