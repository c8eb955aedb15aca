"""SQLite results of the Ascend profilers (torch_npu, MindSpore, msMonitor, msprof)."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

FORMAT = Format(
    name="ascend-db",
    preference=70,
    files=FilePatterns(
        names=("*.db",),
        not_below=("sqlite",),  # PROF_*/{host,device_N}/sqlite: dozens of raw tables, already merged into the result
    ),
    companions=FilePatterns(("profiler_info_*.json",)),
    communication_files=(
        FilePatterns(("*communication_analyzer.db", "analysis.db", "msmonitor_*.db", "profiler_info_*.json")),
        # Only if msprof ran alone: the frameworks write results of their own from it.
        FilePatterns(("msprof_*.db",), not_below=("*_ascend_pt", "*_ascend_ms")),
    ),
    reader="paceline.formats.ascend_db.reader:READER",
)
