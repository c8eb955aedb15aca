"""`cluster_analysis_output` of msprof-analyze: all ranks merged into a few files."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_FILES = FilePatterns(
    ("cluster_step_trace_time.csv", "cluster_communication.json", "cluster_communication_matrix.json")
)

FORMAT = Format(
    name="cluster-analysis",
    preference=20,
    files=_FILES,
    communication_files=(_FILES,),
    reader="paceline.formats.cluster_analysis.reader:READER",
)
