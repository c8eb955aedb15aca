"""Transfer a batch of small files: read one after the other (or with one request), written together."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.zip_strict import zip_strict
from paceline.storage.checksum import md5
from paceline.storage.store_errors import StorageError, TransientError
from paceline.storage.stored_file import Data, FileContent, StoredFile
from paceline.storage.transfer.retry import TransferStopped
from paceline.storage.transfer.transfer_context import TransferContext
from paceline.storage.transfer.transfer_plan import FileTransfer


class SmallFileBatch:
    """The files one thread takes at a time: passing them to threads one by one costs more than moving them."""

    def __init__(self, context: TransferContext, moves: Sequence[FileTransfer]) -> None:
        self._context = context
        self._unread = {move.item.key: move for move in moves}
        self._unwritten: list[tuple[FileTransfer, FileContent]] = []

    def run(self) -> None:
        try:
            # Files read or written before a failure are not read or written again.
            self._context.retry(self._read)
            self._context.retry(self._write)
        except TransferStopped as error:
            self._give_up(error)
        except StorageError as error:
            remaining = self._remaining()
            if len(remaining) == 1:
                self._give_up(error)
            else:
                # One bad file must not fail the others of its batch.
                for move in remaining:
                    SmallFileBatch(self._context, [move]).run()

    def _read(self) -> None:
        for item, data in self._context.source.read_many([move.item for move in self._unread.values()]):
            move = self._unread[item.key]
            self._unwritten.append((move, FileContent(move.target, data, self._verified_md5(move, data))))
            del self._unread[item.key]
            if self._context.retry.stop.is_set():
                raise TransferStopped

    def _verified_md5(self, move: FileTransfer, data: Data) -> str:
        """MD5 of the data read, compared with the source's own checksum where that costs nothing."""
        actual, source, item = md5(data), self._context.source, move.item
        if source.read_batch_size > 1 or not source.verify_reads:
            return actual
        expected = source.digest(item, None)
        if expected is not None and expected != actual:
            if source.etag_is_checksum(item):
                raise TransientError(f"{source.url}/{item.key}: received damaged data (checksum mismatch)")
            if md5(source.read(item, 0, item.size)) != actual:
                raise TransientError(f"{source.url}/{item.key}: two reads returned different data")
        return actual

    def _write(self) -> None:
        written: list[tuple[FileTransfer, StoredFile]] = []
        try:
            contents = [content for _, content in self._unwritten]
            for (move, _), file in zip_strict(self._unwritten, self._context.target.write_many(contents)):
                written.append((move, file))
        finally:
            del self._unwritten[: len(written)]
            self._context.record_transferred(written, uncounted_bytes=sum(move.item.size for move, _ in written))

    def _remaining(self) -> list[FileTransfer]:
        return [*self._unread.values(), *(move for move, _ in self._unwritten)]

    def _give_up(self, error: StorageError | TransferStopped) -> None:
        for move in self._remaining():
            self._context.record_failure(move, error)
