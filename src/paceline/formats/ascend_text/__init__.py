"""Text results of the Ascend profilers (torch_npu, MindSpore): ASCEND_PROFILER_OUTPUT."""

from paceline.formats import minddata, mindspore_cpu
from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

_IDENTITY = ("profiler_info*.json", "profiler_metadata.json")
_COMMUNICATION = ("step_trace_time.csv", "communication.json", "communication_matrix.json", "communication_group.json")

FORMAT = Format(
    name="ascend-text",
    preference=80,
    files=FilePatterns(
        names=(
            "ASCEND_PROFILER_OUTPUT/*.csv",
            "ASCEND_PROFILER_OUTPUT/*.json",
            *_IDENTITY,
            *_COMMUNICATION,
            "kernel_details.csv",
            "trace_view.json",
            "op_statistic.csv",
            "api_statistic.csv",
            "operator_memory.csv",
            "memory_record.csv",
            "npu_module_mem.csv",
            "l2_cache.csv",
            "data_preprocess.csv",
            *minddata.FILES,
            *mindspore_cpu.FILES,
        ),
        not_below=("PROF_*",),
    ),
    communication_files=(FilePatterns((*_IDENTITY, *_COMMUNICATION)),),
    reader="paceline.formats.ascend_text.reader:READER",
)
