"""Check the integrity of checkpoint files: by recorded size and checksum, else by structure."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.manifest import MAX_RECORD_BYTES, FileRecord
from paceline.checkpoint.tensor_files import BLOCK, FileListing
from paceline.checkpoint.tensors.tensor_index import Container
from paceline.checkpoint.write_checkpoint import EtagHasher, WrittenFile, matches_written
from paceline.core.errors import FormatError, PacelineError

_WORKERS = 4


@dataclass
class IntegrityCheck:
    listing: FileListing
    full: bool = False
    """Read the contents when the store cannot report a checksum."""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def find_damage(self, files: Iterable[tuple[str, FileRecord | None]]) -> list[str]:
        """Problems of these files, in their order."""
        with ThreadPoolExecutor(_WORKERS) as pool:
            return [found for found in pool.map(lambda each: self._damage(*each), files) if found]

    def _damage(self, key: str, record: FileRecord | None) -> str | None:
        item = self.listing.items[key]
        if record is None:
            self.note("no checksum is recorded for some files: only their structure was checked")
            return self._structure(key)
        if item.size != record.size:
            return f"{key} has {item.size:,} bytes, but {record.size:,} were written"
        try:
            same = matches_written(self.listing.store, item, WrittenFile(key, record.size, record.md5))
            if same is None and self.full:
                same = self._read(key) == record.md5
        except PacelineError as error:
            return str(error)
        if same is False:
            return f"{key} is damaged: its checksum differs from the recorded one"
        if same is None:
            self.note("the store reports no checksums: only the structure was checked (--full reads everything)")
        # A checksum from the bucket is proof enough; reading file headers there costs requests.
        return None if same and not self.listing.store.is_local else self._structure(key)

    def container(self, key: str) -> Container:
        return open_container(self.listing.file(key))

    def text(self, key: str) -> bytes:
        return self.listing.read_all(key, MAX_RECORD_BYTES)

    def _structure(self, key: str) -> str | None:
        try:
            self.container(key)
        except FormatError as error:
            return str(error)
        except PacelineError as error:
            return f"{key} cannot be read: {error}"
        return None

    def _read(self, key: str) -> str:
        file = self.listing.file(key)
        hasher = EtagHasher(file.size)
        for start in range(0, file.size, BLOCK):
            hasher.update(memoryview(file.read(start, min(BLOCK, file.size - start))))
        return hasher.etag()
