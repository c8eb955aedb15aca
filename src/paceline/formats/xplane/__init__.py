"""JAX and TensorFlow profiles in XPlane format: one file per host, one plane per device."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(("*.xplane.pb",))

FORMAT = Format(
    name="xplane",
    preference=33,
    files=_FILES,
    communication_files=(_FILES,),
    reader="paceline.formats.xplane.reader:READER",
)
