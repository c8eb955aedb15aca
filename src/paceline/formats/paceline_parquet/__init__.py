"""Tables that `paceline export --to parquet` wrote."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_MARKER, _TABLES = FilePatterns(("paceline.json",)), FilePatterns(("*.parquet",))

FORMAT = Format(
    name="paceline",
    preference=100,
    files=_MARKER,
    companions=_TABLES,
    communication_files=(_MARKER, _TABLES),
    reader="paceline.formats.paceline_parquet.reader:READER",
)
