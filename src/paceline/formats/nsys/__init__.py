"""Nsight Systems: reports exported as SQLite, and .nsys-rep where `nsys` is installed."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(("*.sqlite", "*.sqlite3", "*.nsys-rep"))

FORMAT = Format(
    name="nsys",
    preference=35,
    files=_FILES,
    communication_files=(_FILES,),
    reader="paceline.formats.nsys.reader:READER",
)
