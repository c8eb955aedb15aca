"""What a recording format declares: the names of its files, its preference, and where its reader is.

Small on purpose: the declarations of all formats are imported for every source, a reader only for trees with files
of its format. A format is registered as an entry point of the group `paceline.readers` (see docs/add-a-reader.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from paceline.formats.file_patterns import NO_FILES, FilePatterns

if TYPE_CHECKING:
    from paceline.formats.base import Reader


@dataclass(frozen=True)
class Format:
    name: str
    files: FilePatterns
    """The files that recordings of this format consist of: without any of them the reader is not even imported."""
    reader: str
    """module:attribute of the Reader."""
    companions: FilePatterns = NO_FILES
    """Files that the reader uses too, if they lie beside the others; by themselves they are no sign of the format."""
    preference: int = 50
    """If two formats supply the same table of a rank, the one with the higher preference is used."""
    communication_files: tuple[FilePatterns, ...] = ()
    """The files that hold steps and communication: all that is copied if users ask for only that."""

    def needs(self, key: str) -> bool:
        """Whether the reader may open a file, so that it is fetched from a remote tree."""
        return self.files.matches(key) or self.companions.matches(key)

    def load_reader(self) -> Reader:
        module, _, attribute = self.reader.partition(":")
        reader: Reader = getattr(import_module(module), attribute)
        return reader
