"""A file in a store: its key, size and version, and its content while in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

Data = Union[bytes, memoryview]


@dataclass(frozen=True, order=True)
class StoredFile:
    """One file or object below a store's root."""

    key: str
    """Relative to the root, separated by "/"; a directory (in a non-recursive listing) ends with "/"."""
    size: int
    version: str = ""
    """Changes with the content: an ETag, or modification time and inode."""
    problem: str = ""
    """Why it cannot be read, found while listing."""

    @property
    def fingerprint(self) -> str:
        return f"{self.size}:{self.version}"


class FileContent(NamedTuple):
    """A small file in memory, to be written."""

    key: str
    data: Data
    md5: str
