"""Transfer a large file in parts: started by the first part that runs, completed by the last, resumed after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from paceline.storage.checksum import (
    Checksum,
    combine_crc32,
    common_part_sizes,
    crc32,
    md5,
    multipart_etag,
    part_count,
    part_size,
)
from paceline.storage.local_io.direct_io import aligned_buffer
from paceline.storage.store_errors import ChangedError, CorruptError, StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import MultipartUpload
from paceline.storage.transfer.retry import TransferStopped
from paceline.storage.transfer.transfer_context import TransferContext
from paceline.storage.transfer.transfer_plan import FileTransfer

_MAX_SOURCE_PART = 16 << 20
"""Larger parts of the source's uploader are not adopted: a few per thread have to fit into memory."""


class MultipartFile:
    """One file; its parts run in any order, on any thread."""

    def __init__(self, context: TransferContext, move: FileTransfer) -> None:
        self._context, self._retry, self._move = context, context.retry, move
        source_part = context.source.uploaded_part_size(move.item) if context.target.is_local else None
        # With the part size of the upload, the source's ETag can be verified without reading the file again.
        if source_part is not None and source_part <= _MAX_SOURCE_PART:
            self._part_size = source_part
        else:
            self._part_size = part_size(move.item.size)
        self._is_single_part = source_part == move.item.size
        self._count = part_count(move.item.size, self._part_size)
        self._sums: dict[int, str] = {}
        self._crc: str | None = None
        """The source's CRC32 of the content; parts are then checked with CRC32, at a fifth of the cost of MD5."""
        self._checksum: Checksum = md5
        self._parts_left = self._count
        self._upload: MultipartUpload | None = None
        self._error: StorageError | TransferStopped | None = None
        self._lock = threading.Lock()

    def parts(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Size in memory and function of each part."""
        for number in range(self._count):
            yield self._length(number), lambda number=number: self._run_part(number)  # type: ignore[misc]

    def _length(self, number: int) -> int:
        return min(self._part_size, self._move.item.size - number * self._part_size)

    def _run_part(self, number: int) -> None:
        try:
            if self._error is None:
                self._transfer_part(self._started_upload(), number)
        except (StorageError, TransferStopped) as error:
            with self._lock:
                self._error = self._error or error
        with self._lock:
            self._parts_left -= 1
            is_last = self._parts_left == 0
        if is_last:
            self._finish()

    def _started_upload(self) -> MultipartUpload:
        with self._lock:
            if self._error is not None:
                raise TransferStopped
            if self._upload is None:
                try:
                    self._upload = self._start_upload()
                except (StorageError, TransferStopped) as error:
                    self._error = error
                    raise
            return self._upload

    def _start_upload(self) -> MultipartUpload:
        context, item, target = self._context, self._move.item, self._move.target
        resume = context.journal.unfinished_upload(item)
        if context.target.is_local:
            self._crc = self._retry(lambda: context.source.crc32(item))
        # MD5s of parts are useless where the source has a checksum of the whole content.
        if self._crc is not None or self._is_single_part:
            self._checksum = crc32
        upload = self._retry(
            lambda: context.target.begin_upload(
                target, item.size, part_size=self._part_size, resume=resume, checksum=self._checksum
            )
        )
        self._sums.update(upload.stored_parts)
        if resume is None or resume.upload_id != upload.upload_id:
            context.journal.record_upload(item, upload.upload_id)
        return upload

    def _transfer_part(self, upload: MultipartUpload, number: int) -> None:
        context, item = self._context, self._move.item
        length = self._length(number)
        if number not in upload.stored_parts:

            def read_and_put() -> str:
                data = context.source.read(item, number * self._part_size, length, into=aligned_buffer(length))
                return upload.put_part(number, data)

            self._sums[number] = self._retry(read_and_put)
            context.journal.record_part(item, number, self._sums[number])
        context.counter.add(0, length)

    def _finish(self) -> None:
        context, move = self._context, self._move
        if self._error is None and self._upload is not None:
            try:
                context.record_transferred([(move, self._complete(self._upload))], uncounted_bytes=0)
                return
            except (StorageError, TransferStopped) as error:
                self._error = error
        if self._upload is not None:
            self._upload.abort()
        if isinstance(self._error, CorruptError):
            context.journal.forget_upload(move.item)
        if self._error is not None:
            context.record_failure(move, self._error)

    def _complete(self, upload: MultipartUpload) -> StoredFile:
        context, item = self._context, self._move.item
        sums = [self._sums[number] for number in range(self._count)]
        if context.source.verify_reads:
            self._retry(lambda: self._verify(upload, sums))
        now = self._retry(lambda: context.source.stat(item.key))
        if now != item:
            raise ChangedError(f"{context.source.url}/{item.key}: changed while it was read")
        return self._retry(lambda: upload.complete(sums))

    def _verify(self, upload: MultipartUpload, sums: Sequence[str]) -> None:
        """Compare with the source's checksum: of the content, of our parts, or of its uploader's parts."""
        source, item = self._context.source, self._move.item
        if self._crc is not None:
            if combine_crc32(sums, self._part_size, item.size) != self._crc:
                raise CorruptError(f"{source.url}/{item.key}: received damaged data (checksum mismatch)")
            return
        has_checksum = False
        for part in (self._part_size, None, part_size(item.size), *common_part_sizes(item.size)):
            expected = source.digest(item, part)
            if expected is not None:
                has_checksum = True
                if expected == (multipart_etag(sums) if part == self._part_size else upload.digest(part)):
                    return
        if has_checksum and source.etag_is_checksum(item):
            raise CorruptError(f"{source.url}/{item.key}: received damaged data (checksum mismatch)")
        if has_checksum:
            self._read_again(sums)

    def _read_again(self, sums: Sequence[str]) -> None:
        """Where ETags are no checksums, a second read has to agree."""
        source, item = self._context.source, self._move.item
        for number, expected in enumerate(sums):
            data = source.read(item, number * self._part_size, self._length(number))
            if self._checksum(data) != expected:
                raise CorruptError(f"{source.url}/{item.key}: two reads returned different data")
