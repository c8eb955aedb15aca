"""Op-level traces of the OSDI'25 straggler study: one Parquet file per job."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(("*.parquet",))

FORMAT = Format(
    name="osdi-straggler",
    preference=30,
    files=_FILES,
    companions=FilePatterns(("meta*.yaml",)),
    communication_files=(_FILES,),
    reader="paceline.formats.osdi.reader:READER",
)
