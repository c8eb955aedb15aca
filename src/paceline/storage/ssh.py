"""Directories of other hosts over SSH: SFTP for pieces, `find` for lists, `tar` for many small files at once."""

from __future__ import annotations

import io
import shlex
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paceline.storage.checksum import composite, md5, part_count
from paceline.storage.location import Location
from paceline.storage.ssh_connection import Connection, Login
from paceline.storage.store import (
    ChangedError,
    Content,
    CorruptError,
    Data,
    DeniedError,
    FullError,
    Item,
    MissingError,
    Resume,
    StorageError,
    Sum,
    TransientError,
    partial_name,
)

_FIND = "find -L . {depth} -type f -printf '%s\\t%T@\\t%P\\0'"
_WRITE = (
    "mkdir -p {parent} && cd {parent} && cat > {partial} && "
    '[ "$(md5sum < {partial} | cut -c1-32)" = {md5} ] && {{ sync {partial} 2>/dev/null; true; }} && '
    "mv -f {partial} {target} && stat -L -c '%s %Y' {target}"
)
_FULL_SAID = ("No space left", "Disk quota")


class SshStore:
    local = False
    batch = 256
    checks_on_read = True

    def __init__(self, location: Location, login: Login | None = None) -> None:
        self.url = location.url
        self._root = _remote_path(location.path)
        self._connection = Connection(location, login or Login())

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        if shallow:
            yield from self._shallow()
            return
        here = f"cd {shlex.quote(self._root)} 2>/dev/null || exit 44; "
        answer = self._connection.run(here + _FIND.format(depth=""))
        if answer.status == 44:
            return
        if answer.status == 127 or "-printf" in answer.error:
            yield from self._walk("")
            return
        yield from sorted(_found(answer.output))
        if answer.status:
            yield from (Item(line, 0, problem="cannot be listed") for line in answer.error.splitlines()[:20])

    def stat(self, key: str) -> Item | None:
        async def work(_: Any, files: Any) -> Any:
            return await files.stat(self._path(key))

        try:
            with self._explained(key):
                info = self._connection.use(work)
        except MissingError:
            return None
        return _item(key, info) if stat.S_ISREG(info.permissions or 0) else None

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        async def work(_: Any, files: Any) -> tuple[bytes, Any]:
            async with files.open(self._path(item.key), "rb") as file:
                data = await file.read(length, start) if length else b""
                return data, await file.stat()

        with self._explained(item.key):
            data, info = self._connection.use(work)
        if _item(item.key, info) != item:
            raise ChangedError(f"{self.url}/{item.key}: changed while it was read")
        if len(data) != length:
            raise TransientError(f"{self.url}/{item.key}: {len(data):,} of {length:,} bytes arrived")
        return data

    def read_many(self, items: Sequence[Item]) -> Iterator[tuple[Item, Data]]:
        """One `tar` for all of them: four times the files a second that SFTP gives."""
        if len(items) == 1:
            yield items[0], self.read(items[0], 0, items[0].size)
            return
        names = b"".join(b"./" + item.key.encode(errors="surrogateescape") + b"\0" for item in items)
        command = f"cd {shlex.quote(self._root)} && tar -chf - --null --no-recursion -T - 2>/dev/null"
        answer = self._connection.run(command, names)
        yield from self._unpacked(items, answer.output)

    def write(self, key: str, data: Data, md5: str) -> Item:
        """One command: write beside, compare with the host's own md5sum, rename."""
        parent, _, name = self._path(key).rpartition("/")
        partial = f"./{partial_name(name, md5[:8])}"
        answer = self._connection.run(
            _WRITE.format(parent=shlex.quote(parent or "/"), partial=shlex.quote(partial), md5=md5,
                          target=shlex.quote(f"./{name}")),
            bytes(data),
        )  # fmt: skip
        if answer.status == 0:
            size, when = answer.output.split()
            return Item(key, int(size), _version(int(when)))
        if any(text in answer.error for text in _FULL_SAID):
            raise FullError(f"{self.url}/{key}: no space left on that host")
        # No shell or no md5sum over there, or something that SFTP can put into words.
        upload = self.begin(key, len(data), max(1, len(data)), None)
        upload.put(0, data)
        return upload.finish([md5])

    def write_many(self, files: Sequence[Content]) -> Iterator[Item]:
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin(self, key: str, size: int, part: int, resume: Resume | None, total: Sum = md5) -> SshUpload:
        path = self._path(key)
        parent, _, name = path.rpartition("/")
        partial = f"{parent}/{partial_name(name)}"

        async def work(_: Any, files: Any) -> bool:
            await files.makedirs(parent or "/", exist_ok=True)
            return bool(resume) and bool(await files.exists(partial))

        with self._explained(key):
            there = self._connection.use(work)
        return SshUpload(self, key, size, part, partial, dict(resume.parts) if resume and there else {})

    def digest(self, item: Item, part: int | None) -> str | None:
        return self._digest(self._path(item.key), item.size, part)

    def crc32(self, item: Item) -> str | None:
        return None

    def part(self, item: Item) -> int | None:
        return None

    def vouches(self, item: Item) -> bool:
        return True

    def remove(self, key: str) -> None:
        async def work(_: Any, files: Any) -> None:
            await files.remove(self._path(key))

        try:
            with self._explained(key):
                self._connection.use(work)
        except MissingError:
            return

    def close(self) -> None:
        self._connection.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _digest(self, path: str, size: int, part: int | None) -> str | None:
        sums = self._sums(path, size, part)
        if not sums:
            return None
        return sums[0] if part is None else composite(sums)

    def _sums(self, path: str, size: int, part: int | None) -> list[str]:
        """MD5s computed over there; [] where the host has no md5sum."""
        name = shlex.quote(path)
        if part is None:
            command = f"md5sum < {name}"
        else:
            count = part_count(size, part)
            command = (
                f"i=0; while [ $i -lt {count} ]; do dd if={name} bs={part} skip=$i count=1 2>/dev/null | md5sum "
                f"|| exit 1; i=$((i+1)); done"
            )
        answer = self._connection.run(command)
        lines = answer.output.decode(errors="replace").split("\n")
        sums = [line.split()[0] for line in lines if line.strip()]
        return sums if answer.status == 0 and all(len(each) == 32 for each in sums) else []

    def _unpacked(self, items: Sequence[Item], archive: bytes) -> Iterator[tuple[Item, Data]]:
        wanted = {item.key: item for item in items}
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), errors="surrogateescape") as tar:
                for member in tar:
                    item = wanted.pop(member.name.removeprefix("./"), None)
                    if item is None or not member.isfile():
                        continue
                    if (member.size, _version(int(member.mtime))) != (item.size, item.version):
                        raise ChangedError(f"{self.url}/{item.key}: changed while it was read")
                    file = tar.extractfile(member)
                    yield item, file.read() if file else b""
        except tarfile.TarError:
            pass  # cut off, or no tar over there: what is missing is fetched one by one
        for item in wanted.values():
            yield item, self.read(item, 0, item.size)

    def _shallow(self) -> Iterator[Item]:
        async def work(_: Any, files: Any) -> list[Any]:
            return [entry async for entry in files.scandir(self._root)]

        with self._explained(""):
            entries = self._connection.use(work)
        for entry in sorted(entries, key=lambda entry: str(entry.filename)):
            name = str(entry.filename)
            if name in (".", ".."):
                continue
            if stat.S_ISDIR(entry.attrs.permissions or 0):
                yield Item(name + "/", 0)
            else:
                yield _item(name, entry.attrs)

    def _walk(self, prefix: str) -> Iterator[Item]:
        """For hosts without GNU find."""
        inner = SshStore.__new__(SshStore)
        inner.url, inner._root, inner._connection = self.url, self._path(prefix), self._connection
        for item in inner._shallow():
            if item.key.endswith("/"):
                yield from self._walk(prefix + item.key)
            else:
                yield Item(prefix + item.key, item.size, item.version)

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        import asyncssh

        where = f"{self.url}/{key}"
        try:
            yield
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath) as error:
            raise MissingError(f"{where}: no such file") from error
        except asyncssh.SFTPPermissionDenied as error:
            raise DeniedError(f"{where}: permission denied", hint="check who owns it on that host") from error
        except asyncssh.SFTPError as error:
            if isinstance(error, asyncssh.SFTPNoSpaceOnFilesystem) or any(text in str(error) for text in _FULL_SAID):
                raise FullError(f"{where}: no space left on that host") from error
            # OpenSSH says only "Failure" for a full disk and for much else.
            raise StorageError(f"{where}: {error}", hint="a full disk on that host reads like this too") from error


class SshUpload:
    """Parts in a file beside the target on the other host; its own md5sum decides whether it is whole."""

    def __init__(self, store: SshStore, key: str, size: int, part: int, partial: str, done: dict[int, str]) -> None:
        self._store, self._key, self._size, self._part = store, key, size, part
        self.state = self._partial = partial
        self.done = done

    def put(self, number: int, data: Data) -> str:
        import asyncssh

        flags = asyncssh.FXF_WRITE | asyncssh.FXF_CREAT

        async def work(_: Any, files: Any) -> None:
            async with files.open(self._partial, flags, encoding=None) as file:
                await file.write(bytes(data), number * self._part)

        with self._store._explained(self._key):
            self._store._connection.use(work)
        return md5(data)

    def finish(self, sums: Sequence[str]) -> Item:
        target = self._store._path(self._key)

        async def cut_and_sync(_: Any, files: Any) -> None:
            import asyncssh

            async with files.open(self._partial, "r+b") as file:
                await file.truncate(self._size)
                try:
                    await file.fsync()
                except asyncssh.SFTPOpUnsupported:
                    pass  # an extension of OpenSSH

        async def show(_: Any, files: Any) -> Any:
            await files.posix_rename(self._partial, target)
            return await files.stat(target)

        with self._store._explained(self._key):
            self._store._connection.use(cut_and_sync)
            self._compare(sums)
            return _item(self._key, self._store._connection.use(show))

    def digest(self, part: int | None) -> str | None:
        return self._store._digest(self._partial, self._size, part)

    def leave(self) -> None:
        pass

    def _compare(self, sums: Sequence[str]) -> None:
        there = self._store._sums(self._partial, self._size, self._part) or self._read_back()
        if there != list(sums):
            self._store.remove(self._partial.removeprefix(self._store._path("")))
            raise CorruptError(f"{self._store.url}/{self._key}: the other host holds something else than was sent")

    def _read_back(self) -> list[str]:
        """For hosts without md5sum."""

        async def work(_: Any, files: Any, start: int) -> bytes:
            async with files.open(self._partial, "rb") as file:
                return bytes(await file.read(self._part, start))

        starts = range(0, max(1, self._size), self._part)
        use = self._store._connection.use
        return [md5(use(lambda c, f, start=start: work(c, f, start))) for start in starts]  # type: ignore[misc]


def _found(output: bytes) -> Iterator[Item]:
    for line in output.split(b"\0"):
        if line:
            size, when, name = line.decode(errors="surrogateescape").split("\t", 2)
            yield Item(name, int(size), _version(int(when.partition(".")[0])))


def _item(key: str, info: Any) -> Item:
    return Item(key, int(info.size or 0), _version(int(info.mtime or 0)))


def _version(seconds: int) -> str:
    """Whole seconds: all that SFTP tells."""
    return str(seconds)


def _remote_path(path: str) -> str:
    """ssh://host/~/x is below the home directory; with ./, or commands over there would take "-x" for an option."""
    return f"./{path.removeprefix('/~/')}" if path.startswith("/~/") else path or "/"
