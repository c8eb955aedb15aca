"""Unpack archives and compressed files into the cache directory: only members that are asked for.

Nothing is written outside the target: members with absolute names, "..", links and devices are left out. Sizes are bounded
before they are believed.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.core.scratch_directory import scratch_directory
from paceline.storage.archive_names import Needed, inner_name, is_archive
from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.file_tree import File, walk

MAX_UNPACKED = 256 << 30
"""Bytes in all; a profile of one job is smaller."""
MAX_RATIO = 200
"""Compression ratio: traces reach 60."""
MAX_MEMBERS = 250_000
"""Files in one archive; more are refused, not left out."""
_BLOCK = 1 << 20
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)


def unpacked_files(file: File, needed: Needed) -> list[File]:
    """The files of an archive, unpacked once; a changed archive is unpacked again."""
    key = cache_name(f"{file.path.absolute()}?{file.size},{file.mtime_ns}")
    target = cache_part("unpacked") / key
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch_directory(target.parent) as scratch:
            content = scratch / "content"
            content.mkdir()
            _unpack(file, content, needed)
            try:
                content.rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another process was faster
                    raise
    inside = walk(target).files
    if not is_archive(file.name):
        return [replace(each, relative=inner_name(file.relative) or each.relative) for each in inside]
    return [replace(each, relative=f"{file.relative}/{each.relative}") for each in inside]


def _unpack(file: File, target: Path, needed: Needed) -> None:
    try:
        budget = _Budget(file)
        if zipfile.is_zipfile(file.path) and file.name.lower().endswith(".zip"):
            _unpack_zip(file, target, needed, budget)
        elif is_archive(file.name):
            _unpack_tar(file, target, needed, budget)
        else:
            with _uncompressed(file.path) as source:
                _copy(source, target / (inner_name(file.name) or file.name), budget)
    except _DAMAGED as error:
        raise FormatError(message("not_unpacked", error=error), file=file.path) from error


class _Budget:
    """How much may still be unpacked of a file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._left = min(MAX_UNPACKED, max(file.size * MAX_RATIO, 64 << 20))

    def take_members(self, count: int) -> None:
        if count > MAX_MEMBERS:
            raise FormatError(message("many_members", n=MAX_MEMBERS), file=self._file.path)

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FormatError(message("unpacks_profile"), file=self._file.path)


def _unpack_zip(file: File, target: Path, needed: Needed, budget: _Budget) -> None:
    with zipfile.ZipFile(file.path) as archive:
        budget.take_members(len(archive.infolist()))
        for member in archive.infolist():
            name = _safe_name(member.filename)
            if name and not member.is_dir() and _is_wanted(f"{file.relative}/{name}", needed):
                with archive.open(member) as source:
                    _copy(cast(BinaryIO, source), target / name, budget)


def _unpack_tar(file: File, target: Path, needed: Needed, budget: _Budget) -> None:
    with _uncompressed(file.path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive, 1):
            budget.take_members(count)
            name = _safe_name(member.name)
            if name and member.isreg() and _is_wanted(f"{file.relative}/{name}", needed):
                source = archive.extractfile(member)
                if source is not None:
                    _copy(cast(BinaryIO, source), target / name, budget)


def _is_wanted(name: str, needed: Needed) -> bool:
    inner = inner_name(name)
    return needed(name) or (inner is not None and needed(inner))


def _safe_name(name: str) -> str | None:
    """The path of a member below the target; None if it would lie elsewhere."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or ":" in path.parts[0]:
        return None
    return path.as_posix()


def _copy(source: BinaryIO, target: Path, budget: _Budget) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    inner = inner_name(target.name)
    with target.open("wb") as out:
        while block := source.read(_BLOCK):
            budget.take(len(block))
            out.write(block)
    if inner is not None and not target.name.endswith(".gz"):
        with _uncompressed(target) as packed, target.with_name(inner).open("wb") as out:
            while block := packed.read(_BLOCK):
                budget.take(len(block))
                out.write(block)
        target.unlink()


@contextmanager
def _uncompressed(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, decompressed by what its name says."""
    name = path.name.lower()
    if name.endswith(".zst"):
        with _zstd(path) as stream:
            yield stream
        return
    openers: dict[tuple[str, ...], Any] = {(".gz", ".tgz"): gzip.open, (".xz",): lzma.open, (".bz2",): bz2.open}
    opener = next((opener for ends, opener in openers.items() if name.endswith(ends)), open)
    with opener(path, "rb") as file:
        yield cast(BinaryIO, file)


@contextmanager
def _zstd(path: Path) -> Iterator[BinaryIO]:
    """Python 3.14 knows Zstandard; before, a package or the program zstd does."""
    for module in ("compression.zstd", "zstandard", "pyzstd"):
        try:
            opener = importlib.import_module(module).open
        except ImportError:
            continue
        try:
            with opener(path, "rb") as file:
                yield file
        except getattr(importlib.import_module(module), "ZstdError", OSError) as error:
            raise OSError(str(error)) from error
        return
    program = shutil.which("zstd")
    if not program:
        raise FormatError(message("no_zstandard"), file=path)
    with subprocess.Popen(
        [program, "-dcq", "--", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        yield cast(BinaryIO, process.stdout)
        process.stdout.close()
        if process.wait() > 0:
            raise OSError("zstd: damaged or cut-off data")
