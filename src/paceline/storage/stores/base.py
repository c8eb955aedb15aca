"""The interface every store implements: listing, reading, writing, uploads in parts, checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.storage.checksum import Checksum
from paceline.storage.stored_file import Data, FileContent, StoredFile


class MultipartUpload(Protocol):
    """An upload of a large file in parts; the file is not visible before `complete`."""

    @property
    def upload_id(self) -> str:
        """How the store finds this upload again after a crash."""
        ...

    @property
    def stored_parts(self) -> Mapping[int, str]:
        """Parts the store already holds (0-based number → checksum)."""
        ...

    def put_part(self, number: int, data: Data) -> str:
        """Store a part, verified; returns its checksum."""
        ...

    def complete(self, sums: Sequence[str]) -> StoredFile:
        """Compare with the parts' checksums and make the file visible, atomically."""
        ...

    def digest(self, part: int | None) -> str | None:
        """As `Store.digest`, of all parts before they are visible; None when unknown."""
        ...

    def abort(self) -> None:
        """Stop without completing and release local resources; stored parts remain, so that a later run can resume."""
        ...


@dataclass(frozen=True)
class UnfinishedUpload:
    """What the journal knows of an upload that did not complete."""

    upload_id: str
    parts: Mapping[int, str]


class Store(Protocol):
    """Files below a root: a local directory, a bucket below a prefix, a directory on another host.

    Methods raise the errors of store_errors.py: the kind of error decides whether the caller retries.
    """

    url: str
    is_local: bool
    read_batch_size: int
    """How many small files one `read_many` should request."""
    verify_reads: bool
    """Whether data read from here should be compared with `digest`; False where reading already proves it."""

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        """All files below the root, sorted by key within a page; nothing when the root does not exist.

        Not recursive: the files directly below the root, and its directories with a "/" at the end of their keys.
        """
        ...

    def stat(self, key: str) -> StoredFile | None: ...

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        """Exactly these bytes of exactly this version; a store may read them `into` a buffer of that length."""
        ...

    def read_many(self, items: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, Data]]:
        """The full content of small files, in any order."""
        ...

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        """Write a small file: verified, and visible only when complete."""
        ...

    def write_many(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
        """`write` for several files, yielded in order. An error belongs to the first file that was not yielded; the
        files after it are not written either."""
        ...

    def begin_upload(
        self, key: str, size: int, *, part_size: int, resume: UnfinishedUpload | None = None, checksum: Checksum = ...
    ) -> MultipartUpload:
        """Start or resume an upload in parts; `checksum` is used for the parts where the store is local, other stores
        return MD5s."""
        ...

    def digest(self, item: StoredFile, part: int | None) -> str | None:
        """MD5 of the content, or with a part size the MD5 of its parts' MD5s (S3's multipart ETag); None when unknown."""
        ...

    def crc32(self, item: StoredFile) -> str | None:
        """CRC32 of the content, if the store verified and kept it when the file was written; else None."""
        ...

    def uploaded_part_size(self, item: StoredFile) -> int | None:
        """Size of the parts it was uploaded in (its own size: in one piece), if the ETag shows it; else None."""
        ...

    def etag_is_checksum(self, item: StoredFile) -> bool:
        """Whether a digest that differs from the data read proves damage (not so for ETags of encrypted buckets)."""
        ...

    def remove(self, key: str) -> None: ...

    def close(self) -> None: ...
