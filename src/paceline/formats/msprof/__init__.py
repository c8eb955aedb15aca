"""Exports of msprof: PROF_* trees."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_DIRECTORIES = ("device_*/timeline", "device_*/summary", "mindstudio_profiler_output")
_RESULTS = (
    "msprof_*.json",
    "hccl_*.json",
    "step_trace_*.json",
    "step_trace_*.csv",
    "task_time_*.json",
    "op_summary_*.csv",
    "op_statistic_*.csv",
    "api_statistic_*.csv",
)

FORMAT = Format(
    name="msprof",
    preference=60,
    files=FilePatterns(
        names=(
            "device_*/info.json.*",
            *(f"{directory}/{name}" for directory in _DIRECTORIES for name in _RESULTS),
            "analyze/communication.json",
            "analyze/communication_matrix.json",
        ),
    ),
    companions=FilePatterns(("profiler_info_*.json",)),
    communication_files=(
        FilePatterns(
            (
                "info.json*",
                "hccl_*_*_*.json",
                "step_trace_*.json",
                "step_trace_*.csv",
                "analyze/communication*.json",
                "profiler_info_*.json",
            )
        ),
        # Only if msprof ran alone: the frameworks write results of their own from its timeline.
        FilePatterns(("mindstudio_profiler_output/msprof_*.json",), not_below=("*_ascend_pt", "*_ascend_ms")),
    ),
    reader="paceline.formats.msprof.reader:READER",
)
