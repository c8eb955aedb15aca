"""What every store offers, and the ways it can fail.

StorageError             what happened, at which URL, and what to do
├── TransientError       may work on the next try (network, 5xx, a cut-off answer)
│   └── ThrottledError   the server asks for fewer requests
├── MissingError         there is no such object
├── DeniedError          keys, permissions, host keys
├── UnsupportedError     the server does not know this request
├── ChangedError         the source is not what was listed: somebody is still writing it
├── CorruptError         what arrived is not what was sent
└── FullError            no space left: trying other files makes no sense
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from paceline.errors import PacelineError
from paceline.storage.secret import redact

Data = bytes | memoryview
Sum = Callable[[Data], str]
"""A checksum in hexadecimal: MD5 or CRC32."""
PARTIAL = ".paceline-part"
"""How names of files end that are still being written here."""
_LONGEST = 200
"""Bytes of a name; file systems take 255."""


def partial_name(name: str, extra: str = "") -> str:
    """What a file is called until it is whole; long names become shorter, or there would be no room for the ending."""
    short = name if len(os.fsencode(name)) <= _LONGEST else hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return f".{short}.{extra}{PARTIAL}" if extra else f".{short}{PARTIAL}"


class StorageError(PacelineError):
    """Something a store could not do; never holds a secret."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redact(message), hint=hint)


class TransientError(StorageError):
    pass


class ThrottledError(TransientError):
    pass


class MissingError(StorageError):
    pass


class DeniedError(StorageError):
    pass


class UnsupportedError(StorageError):
    pass


class ChangedError(StorageError):
    pass


class CorruptError(StorageError):
    pass


class FullError(StorageError):
    pass


@dataclass(frozen=True, order=True, slots=True)
class Item:
    """One file or object below a store's root."""

    key: str
    """Relative to the root, with "/"; a directory (in a shallow listing) ends with one."""
    size: int
    version: str = ""
    """Changes when the content does: an ETag, or modification time and inode."""
    problem: str = ""
    """Why it cannot be read, found while listing."""

    @property
    def fingerprint(self) -> str:
        return f"{self.size}:{self.version}"


class Content(NamedTuple):
    """A small file in memory, on its way in."""

    key: str
    data: Data
    md5: str


class Upload(Protocol):
    """A large object on its way in; nobody sees it before `finish`."""

    @property
    def state(self) -> str:
        """What the store needs to find it again after a crash."""
        ...

    @property
    def done(self) -> Mapping[int, str]:
        """Parts that are already there (0-based number → checksum)."""
        ...

    def put(self, number: int, data: Data) -> str:
        """Store a part, verified; returns its checksum."""
        ...

    def finish(self, sums: Sequence[str]) -> Item:
        """Check against the parts' checksums and make visible, in one step."""
        ...

    def digest(self, part: int | None) -> str | None:
        """As `Store.digest`, of all parts together before they are visible; None: cannot be told."""
        ...

    def leave(self) -> None:
        """Stop here and keep the parts for a later run."""
        ...


@dataclass(frozen=True)
class Resume:
    """What is known of an upload that did not finish."""

    state: str
    parts: Mapping[int, str]


class Store(Protocol):
    """A place that holds files: a directory, a bucket below a prefix, a directory on another host."""

    url: str
    local: bool
    batch: int
    """How many small files one `read_many` should ask for."""
    checks_on_read: bool
    """Whether `digest` of what was read tells more than reading did."""

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        """Everything below the root, sorted by key within a page; nothing when the root does not exist."""
        ...

    def stat(self, key: str) -> Item | None: ...

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        """Exactly these bytes of exactly this version; a store may read them `into` memory of that length."""
        ...

    def read_many(self, items: Sequence[Item]) -> Iterator[tuple[Item, Data]]:
        """Small files whole, in any order."""
        ...

    def write(self, key: str, data: Data, md5: str) -> Item:
        """A small object, whole, verified, visible in one step."""
        ...

    def write_many(self, files: Sequence[Content]) -> Iterator[Item]:
        """`write` for several, told in order; what raises is the first that was not told, and those after it are not
        written either."""
        ...

    def begin(self, key: str, size: int, part: int, resume: Resume | None, total: Sum = ...) -> Upload:
        """`total` sums up parts where the store is local; others tell MD5s of their own."""
        ...

    def digest(self, item: Item, part: int | None) -> str | None:
        """MD5 of the content (or, with a part size, of its parts' MD5s, as S3 tags it); None: cannot be told."""
        ...

    def crc32(self, item: Item) -> str | None:
        """CRC32 of the whole, where it was checked and kept when the object was written; None: it was not."""
        ...

    def part(self, item: Item) -> int | None:
        """Size of the parts it was written in (its own: in one piece), as far as its tag tells; None: it does not."""
        ...

    def vouches(self, item: Item) -> bool:
        """Whether a digest that differs from what was read proves damage (encrypted buckets' tags prove nothing)."""
        ...

    def remove(self, key: str) -> None: ...

    def close(self) -> None: ...
