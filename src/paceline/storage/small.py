"""Small files, several at a time: read one after the other (or with one request), written together."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.storage.checksum import md5
from paceline.storage.passage import Passage
from paceline.storage.plan import Move
from paceline.storage.retry import Stopped
from paceline.storage.store import Content, Data, Item, StorageError, TransientError


class SmallFiles:
    """What one thread takes: handing over each file by itself costs more than moving it."""

    def __init__(self, passage: Passage, moves: Sequence[Move]) -> None:
        self._passage = passage
        self._unread = {move.item.key: move for move in moves}
        self._unwritten: list[tuple[Move, Content]] = []

    def run(self) -> None:
        try:
            # What was read or written before something failed stays so: a storm does not begin the group anew.
            self._passage.retry(self._read)
            self._passage.retry(self._write)
        except Stopped as error:
            self._give_up(error)
        except StorageError as error:
            left = self._left()
            if len(left) == 1:
                self._give_up(error)
            else:
                # One bad file must not fail its neighbours.
                for move in left:
                    SmallFiles(self._passage, [move]).run()

    def _read(self) -> None:
        for item, data in self._passage.source.read_many([move.item for move in self._unread.values()]):
            move = self._unread[item.key]
            self._unwritten.append((move, Content(move.target, data, self._checked(move, data))))
            del self._unread[item.key]
            if self._passage.retry.stop.is_set():
                raise Stopped

    def _checked(self, move: Move, data: Data) -> str:
        """MD5 of what was read, held against what the source says of itself, where that is free."""
        found, source, item = md5(data), self._passage.source, move.item
        if source.batch > 1 or not source.checks_on_read:
            return found
        told = source.digest(item, None)
        if told is not None and told != found:
            if source.vouches(item):
                raise TransientError(f"{source.url}/{item.key}: arrived damaged")
            if md5(source.read(item, 0, item.size)) != found:
                raise TransientError(f"{source.url}/{item.key}: two readings differ")
        return found

    def _write(self) -> None:
        arrived: list[tuple[Move, Item]] = []
        try:
            files = [content for _, content in self._unwritten]
            for (move, _), landed in zip(self._unwritten, self._passage.target.write_many(files), strict=True):
                arrived.append((move, landed))
        finally:
            del self._unwritten[: len(arrived)]
            self._passage.arrived(arrived, counted=sum(move.item.size for move, _ in arrived))

    def _left(self) -> list[Move]:
        return [*self._unread.values(), *(move for move, _ in self._unwritten)]

    def _give_up(self, error: StorageError | Stopped) -> None:
        for move in self._left():
            self._passage.failed(move, error)
