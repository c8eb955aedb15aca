"""Directories of SSH hosts as a store: SFTP for parts of files, `find` for listings, `tar` for many small files."""

from __future__ import annotations

import io
import shlex
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paceline.storage.checksum import Checksum, md5, multipart_etag, part_count
from paceline.storage.partial_files import partial_name
from paceline.storage.store_errors import (
    ChangedError,
    CorruptError,
    DeniedError,
    FullError,
    MissingError,
    StorageError,
    TransientError,
)
from paceline.storage.stored_file import Data, FileContent, StoredFile
from paceline.storage.stores.base import UnfinishedUpload
from paceline.storage.stores.client_library import require_client
from paceline.storage.stores.ssh_connection import SshConnection, SshLogin
from paceline.storage.url import StorageUrl

_FIND = "find -L . -type f -printf '%s\\t%T@\\t%P\\0'"
_WRITE = (
    "mkdir -p {parent} && cd {parent} && cat > {partial} && "
    '[ "$(md5sum < {partial} | cut -c1-32)" = {md5} ] && {{ sync {partial} 2>/dev/null; true; }} && '
    "mv -f {partial} {target} && stat -L -c '%s %Y' {target}"
)
_DISK_FULL_MESSAGES = ("No space left", "Disk quota")


def open_ssh_store(url: StorageUrl) -> SshStore:
    require_client("asyncssh")
    return SshStore(url)


class SshStore:
    is_local = False
    read_batch_size = 256
    verify_reads = True

    def __init__(self, url: StorageUrl, login: SshLogin | None = None) -> None:
        self.url = url.text
        self._root = _remote_path(url.path)
        self._connection = SshConnection(url, login or SshLogin())

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        if not recursive:
            yield from self._list_directory()
            return
        change_directory = f"cd {shlex.quote(self._root)} 2>/dev/null || exit 44; "
        result = self._connection.run(change_directory + _FIND)
        if result.status == 44:
            return
        if result.status == 127 or "-printf" in result.error:
            yield from self._walk("")
            return
        yield from sorted(_parse_find_output(result.output))
        if result.status:
            yield from (StoredFile(line, 0, problem="cannot be listed") for line in result.error.splitlines()[:20])

    def stat(self, key: str) -> StoredFile | None:
        async def work(_: Any, sftp: Any) -> Any:
            return await sftp.stat(self._path(key))

        try:
            with self._translate_errors(key):
                info = self._connection.run_async(work)
        except MissingError:
            return None
        return _item(key, info) if stat.S_ISREG(info.permissions or 0) else None

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        async def work(_: Any, sftp: Any) -> tuple[bytes, Any]:
            async with sftp.open(self._path(item.key), "rb") as file:
                data = await file.read(length, start) if length else b""
                return data, await file.stat()

        with self._translate_errors(item.key):
            data, info = self._connection.run_async(work)
        if _item(item.key, info) != item:
            raise ChangedError(f"{self.url}/{item.key}: changed while it was read")
        if len(data) != length:
            raise TransientError(f"{self.url}/{item.key}: received {len(data):,} of {length:,} bytes")
        return data

    def read_many(self, items: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, Data]]:
        """One `tar` for all of them: four times as many files per second as with SFTP."""
        if len(items) == 1:
            yield items[0], self.read(items[0], 0, items[0].size)
            return
        names = b"".join(b"./" + item.key.encode(errors="surrogateescape") + b"\0" for item in items)
        command = f"cd {shlex.quote(self._root)} && tar -chf - --null --no-recursion -T - 2>/dev/null"
        result = self._connection.run(command, names)
        yield from self._unpack_tar(items, result.output)

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        """One command: write a partial file, compare with the host's md5sum, rename."""
        parent, _, name = self._path(key).rpartition("/")
        partial = f"./{partial_name(name, md5[:8])}"
        result = self._connection.run(
            _WRITE.format(
                parent=shlex.quote(parent or "/"),
                partial=shlex.quote(partial),
                md5=md5,
                target=shlex.quote(f"./{name}"),
            ),
            bytes(data),
        )
        if result.status == 0:
            size, when = result.output.split()
            return StoredFile(key, int(size), _version(int(when)))
        if any(text in result.error for text in _DISK_FULL_MESSAGES):
            raise FullError(f"{self.url}/{key}: no space left on the host")
        # No shell or no md5sum on the host, or an error for which SFTP has a clearer message.
        upload = self.begin_upload(key, len(data), part_size=max(1, len(data)))
        upload.put_part(0, data)
        return upload.complete([md5])

    def write_many(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin_upload(
        self, key: str, size: int, *, part_size: int, resume: UnfinishedUpload | None = None, checksum: Checksum = md5
    ) -> SshUpload:
        path = self._path(key)
        parent, _, name = path.rpartition("/")
        partial = f"{parent}/{partial_name(name)}"

        async def work(_: Any, sftp: Any) -> bool:
            await sftp.makedirs(parent or "/", exist_ok=True)
            return bool(resume) and bool(await sftp.exists(partial))

        with self._translate_errors(key):
            exists = self._connection.run_async(work)
        stored_parts = dict(resume.parts) if resume and exists else {}
        return SshUpload(self, key, size, part_size=part_size, partial=partial, stored_parts=stored_parts)

    def digest(self, item: StoredFile, part: int | None) -> str | None:
        return self._digest(self._path(item.key), item.size, part)

    def crc32(self, item: StoredFile) -> str | None:
        return None

    def uploaded_part_size(self, item: StoredFile) -> int | None:
        return None

    def etag_is_checksum(self, item: StoredFile) -> bool:
        return True

    def remove(self, key: str) -> None:
        async def work(_: Any, sftp: Any) -> None:
            await sftp.remove(self._path(key))

        try:
            with self._translate_errors(key):
                self._connection.run_async(work)
        except MissingError:
            return

    def close(self) -> None:
        self._connection.close()

    # -- private -----------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _digest(self, path: str, size: int, part: int | None) -> str | None:
        sums = self._remote_md5s(path, size, part)
        if not sums:
            return None
        return sums[0] if part is None else multipart_etag(sums)

    def _remote_md5s(self, path: str, size: int, part: int | None) -> list[str]:
        """MD5s computed on the host; [] where it has no md5sum."""
        name = shlex.quote(path)
        if part is None:
            command = f"md5sum < {name}"
        else:
            count = part_count(size, part)
            command = (
                f"i=0; while [ $i -lt {count} ]; do dd if={name} bs={part} skip=$i count=1 2>/dev/null | md5sum "
                f"|| exit 1; i=$((i+1)); done"
            )
        result = self._connection.run(command)
        lines = result.output.decode(errors="replace").split("\n")
        sums = [line.split()[0] for line in lines if line.strip()]
        return sums if result.status == 0 and all(len(each) == 32 for each in sums) else []

    def _unpack_tar(self, items: Sequence[StoredFile], archive: bytes) -> Iterator[tuple[StoredFile, Data]]:
        wanted = {item.key: item for item in items}
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), errors="surrogateescape") as tar:
                for member in tar:
                    item = wanted.pop(_without_prefix(member.name, "./"), None)
                    if item is None or not member.isfile():
                        continue
                    if (member.size, _version(int(member.mtime))) != (item.size, item.version):
                        raise ChangedError(f"{self.url}/{item.key}: changed while it was read")
                    file = tar.extractfile(member)
                    yield item, file.read() if file else b""
        except tarfile.TarError:
            pass  # truncated, or no tar on the host: the remaining files are fetched one by one
        for item in wanted.values():
            yield item, self.read(item, 0, item.size)

    def _list_directory(self) -> Iterator[StoredFile]:
        async def work(_: Any, sftp: Any) -> list[Any]:
            return [entry async for entry in sftp.scandir(self._root)]

        with self._translate_errors(""):
            entries = self._connection.run_async(work)
        for entry in sorted(entries, key=lambda entry: str(entry.filename)):
            name = str(entry.filename)
            if name in (".", ".."):
                continue
            if stat.S_ISDIR(entry.attrs.permissions or 0):
                yield StoredFile(name + "/", 0)
            else:
                yield _item(name, entry.attrs)

    def _walk(self, prefix: str) -> Iterator[StoredFile]:
        """For hosts without GNU find."""
        inner = SshStore.__new__(SshStore)
        inner.url, inner._root, inner._connection = self.url, self._path(prefix), self._connection
        for item in inner._list_directory():
            if item.key.endswith("/"):
                yield from self._walk(prefix + item.key)
            else:
                yield StoredFile(prefix + item.key, item.size, item.version)

    @contextmanager
    def _translate_errors(self, key: str) -> Iterator[None]:
        import asyncssh

        where = f"{self.url}/{key}"
        try:
            yield
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath) as error:
            raise MissingError(f"{where}: no such file") from error
        except asyncssh.SFTPPermissionDenied as error:
            raise DeniedError(f"{where}: permission denied", hint="check its owner and mode on the host") from error
        except asyncssh.SFTPError as error:
            if isinstance(error, asyncssh.SFTPNoSpaceOnFilesystem) or any(
                text in str(error) for text in _DISK_FULL_MESSAGES
            ):
                raise FullError(f"{where}: no space left on the host") from error
            # OpenSSH reports only "Failure" for a full disk and for many other errors.
            raise StorageError(f"{where}: {error}", hint="check also whether the host's disk is full") from error


class SshUpload:
    """An upload into a partial file in the target's directory, compared with the host's md5sum before it is renamed."""

    def __init__(
        self, store: SshStore, key: str, size: int, *, part_size: int, partial: str, stored_parts: dict[int, str]
    ) -> None:
        self._store, self._key, self._size, self._part_size = store, key, size, part_size
        self.upload_id = self._partial = partial
        self.stored_parts = stored_parts

    def put_part(self, number: int, data: Data) -> str:
        import asyncssh

        flags = asyncssh.FXF_WRITE | asyncssh.FXF_CREAT

        async def work(_: Any, sftp: Any) -> None:
            async with sftp.open(self._partial, flags, encoding=None) as file:
                await file.write(bytes(data), number * self._part_size)

        with self._store._translate_errors(self._key):
            self._store._connection.run_async(work)
        return md5(data)

    def complete(self, sums: Sequence[str]) -> StoredFile:
        target = self._store._path(self._key)

        async def truncate_and_sync(_: Any, sftp: Any) -> None:
            import asyncssh

            async with sftp.open(self._partial, "r+b") as file:
                await file.truncate(self._size)
                try:
                    await file.fsync()
                except asyncssh.SFTPOpUnsupported:
                    pass  # an extension of OpenSSH

        async def rename(_: Any, sftp: Any) -> Any:
            await sftp.posix_rename(self._partial, target)
            return await sftp.stat(target)

        with self._store._translate_errors(self._key):
            self._store._connection.run_async(truncate_and_sync)
            self._verify(sums)
            return _item(self._key, self._store._connection.run_async(rename))

    def digest(self, part: int | None) -> str | None:
        return self._store._digest(self._partial, self._size, part)

    def abort(self) -> None:
        pass

    def _verify(self, sums: Sequence[str]) -> None:
        remote = self._store._remote_md5s(self._partial, self._size, self._part_size) or self._read_back()
        if remote != list(sums):
            self._store.remove(_without_prefix(self._partial, self._store._path("")))
            raise CorruptError(f"{self._store.url}/{self._key}: the file on the host differs from the data sent")

    def _read_back(self) -> list[str]:
        """For hosts without md5sum."""

        async def work(_: Any, sftp: Any, start: int) -> bytes:
            async with sftp.open(self._partial, "rb") as file:
                return bytes(await file.read(self._part_size, start))

        starts = range(0, max(1, self._size), self._part_size)
        run = self._store._connection.run_async
        return [md5(run(lambda c, s, start=start: work(c, s, start))) for start in starts]  # type: ignore[misc]


def _parse_find_output(output: bytes) -> Iterator[StoredFile]:
    for line in output.split(b"\0"):
        if line:
            size, when, name = line.decode(errors="surrogateescape").split("\t", 2)
            yield StoredFile(name, int(size), _version(int(when.partition(".")[0])))


def _item(key: str, info: Any) -> StoredFile:
    return StoredFile(key, int(info.size or 0), _version(int(info.mtime or 0)))


def _version(seconds: int) -> str:
    """Whole seconds, the resolution of SFTP."""
    return str(seconds)


def _remote_path(path: str) -> str:
    """ssh://host/~/x is below the home directory; "./" keeps commands on the host from taking "-x" for an option."""
    return f"./{path[len('/~/') :]}" if path.startswith("/~/") else path or "/"


def _without_prefix(text: str, prefix: str) -> str:
    return text[len(prefix) :] if text.startswith(prefix) else text
