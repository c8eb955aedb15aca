"""Is a file what its writer wrote? By size and checksum where they were recorded, else by its structure."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from paceline.checkpoint.arrays import Tag, Written, is_as_written
from paceline.checkpoint.containers import open_container
from paceline.checkpoint.files import BLOCK, Place
from paceline.checkpoint.record import MOST, FileRecord
from paceline.checkpoint.tensors import Container
from paceline.errors import FormatError, PacelineError

_WORKERS = 4


@dataclass
class Inspection:
    place: Place
    full: bool = False
    """Read contents where the store cannot tell their checksum."""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def damages(self, files: Iterable[tuple[str, FileRecord | None]]) -> list[str]:
        """What is wrong with these files, in their order."""
        with ThreadPoolExecutor(_WORKERS) as pool:
            return [found for found in pool.map(lambda each: self.damage(*each), files) if found]

    def damage(self, key: str, record: FileRecord | None) -> str | None:
        item = self.place.items[key]
        if record is None:
            self.note("no checksums were recorded for some files: only their structure was checked")
            return self._structure(key)
        if item.size != record.size:
            return f"{key} has {item.size:,} bytes, {record.size:,} were written"
        try:
            same = is_as_written(self.place.store, item, Written(key, record.size, record.md5))
            if same is None and self.full:
                same = self._read(key) == record.md5
        except PacelineError as error:
            return str(error)
        if same is False:
            return f"{key} is damaged: its checksum is not the one that was written"
        if same is None:
            self.note("the store does not tell checksums: only structure was checked (--full reads everything)")
        # A bucket's checksum has said all; reading heads there costs requests.
        return None if same and not self.place.store.local else self._structure(key)

    def container(self, key: str) -> Container:
        return open_container(self.place.file(key))

    def text(self, key: str) -> bytes:
        return self.place.read_all(key, MOST)

    def _structure(self, key: str) -> str | None:
        try:
            self.container(key)
        except FormatError as error:
            return str(error)
        except PacelineError as error:
            return f"{key} cannot be read: {error}"
        return None

    def _read(self, key: str) -> str:
        file = self.place.file(key)
        tag = Tag(file.size)
        for start in range(0, file.size, BLOCK):
            tag.update(memoryview(file.read(start, min(BLOCK, file.size - start))))
        return tag.text()
