"""Small files, several at a time: read one after the other (or with one request), made visible together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.storage.checksum import md5
from paceline.storage.passage import Passage
from paceline.storage.plan import Move
from paceline.storage.retry import Stopped
from paceline.storage.store import Data, Item, StorageError, TransientError

_CROWD = 4
"""From here on, files are made visible together."""


class SmallFiles:
    """What one thread takes: handing over each file by itself costs more than moving it."""

    def __init__(self, passage: Passage, moves: Sequence[Move]) -> None:
        self._passage = passage
        self._together = len(moves) >= _CROWD
        self._staged: list[tuple[Move, Callable[[], Item]]] = []
        self._left = {move.item.key: move for move in moves}

    def run(self) -> None:
        try:
            self._passage.retry(self._read)
        except Stopped as error:
            self._give_up(error)
        except StorageError as error:
            if len(self._left) == 1:
                self._give_up(error)
            else:
                # One bad file must not fail its neighbours.
                self._one_by_one(list(self._left.values()))
        self._land()

    def _read(self) -> None:
        for item, data in self._passage.source.read_many([move.item for move in self._left.values()]):
            self._write(self._left[item.key], data)
            del self._left[item.key]
            if self._passage.retry.stop.is_set():
                raise Stopped

    def _write(self, move: Move, data: Data) -> None:
        found = md5(data)
        self._check(move, found)
        target = self._passage.target
        if self._together:
            self._staged.append((move, target.stage(move.target, data, found)))
        else:
            self._passage.arrived(move, target.write(move.target, data, found), counted=move.item.size)

    def _check(self, move: Move, found: str) -> None:
        """Against what the source says of itself, where that is free."""
        source, item = self._passage.source, move.item
        if source.batch > 1 or not source.checks_on_read:
            return
        told = source.digest(item, None)
        if told is not None and told != found:
            if source.vouches(item):
                raise TransientError(f"{source.url}/{item.key}: arrived damaged")
            if md5(source.read(item, 0, item.size)) != found:
                raise TransientError(f"{source.url}/{item.key}: two readings differ")

    def _land(self) -> None:
        for move, land in self._staged:
            try:
                self._passage.arrived(move, land(), counted=move.item.size)
            except TransientError:
                self._one_by_one([move])
            except StorageError as error:
                self._passage.failed(move, error)

    def _one_by_one(self, moves: Sequence[Move]) -> None:
        for move in moves:
            SmallFiles(self._passage, [move]).run()

    def _give_up(self, error: StorageError | Stopped) -> None:
        for move in self._left.values():
            self._passage.failed(move, error)
