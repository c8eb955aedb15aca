"""torch.profiler traces (Kineto): one Chrome trace per rank."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

FORMAT = Format(
    name="kineto",
    preference=40,
    files=FilePatterns(
        names=("*.json", "*.json.gz"),
        # JSON files of Ascend tools: torch traces have other names.
        except_names=(
            "trace_view*",
            "msprof*",
            "ascend_timeline*",
            "task_time*",
            "step_trace*",
            "hccl*",
            "profiler_info*",
            "profiler_metadata*",
            "communication*",
            "pipeline_profiling*",
            "minddata*",
        ),
        not_below=(
            "ASCEND_PROFILER_OUTPUT",
            "mindstudio_profiler_output",
            "PROF_*",
            "FRAMEWORK",
            "ASCEND_WORK_PATH",
            "kernel_meta",
        ),
    ),
    communication_files=(FilePatterns(("*.pt.trace.json", "*.pt.trace.json.gz")),),
    reader="paceline.formats.kineto.reader:READER",
)
