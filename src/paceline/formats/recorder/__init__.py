"""Logs of `paceline.profiling.Recorder`."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(("steps-*.jsonl",))

FORMAT = Format(
    name="light",
    preference=90,
    files=_FILES,
    communication_files=(_FILES,),
    reader="paceline.formats.recorder.reader:READER",
)
