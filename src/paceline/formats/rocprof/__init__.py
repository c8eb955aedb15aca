"""rocprofv3: the JSON results of ROCm's profiler, one file per process."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(("*_results.json", "*_results.json.gz"))

FORMAT = Format(
    name="rocprof",
    preference=34,
    files=_FILES,
    communication_files=(_FILES,),
    reader="paceline.formats.rocprof.reader:READER",
)
