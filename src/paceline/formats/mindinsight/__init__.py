"""What MindSpore's profiler wrote for MindInsight (0.5 to 2.3) and msadvisor."""

from paceline.formats import minddata, mindspore_cpu
from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format
from paceline.formats.rank_table import HOST_NAMES

_COMMUNICATION = (
    "step_trace_raw_*_detail_time.csv",
    "hccl_raw_*.csv",
    "ascend_timeline_display_*.json",
    "ascend_cluster_analyse_*.csv",
    "gpu_cluster_analyse_*.csv",
    "hccl_info*/*/iter*.trace",
)
_COMPANIONS = FilePatterns(("profiler_info_*.json", HOST_NAMES))

FORMAT = Format(
    name="mindinsight",
    preference=50,
    files=FilePatterns(
        names=(
            *_COMMUNICATION,
            "memory_usage_*.pb",
            "memory_usage_*.json",
            "flops_*.txt",
            "flops_summary_*.json",
            "aicore_intermediate_*.csv",
            "aicpu_intermediate_*.csv",
            "framework_raw_*.csv",
            "gpu_op_*_info_*.csv",
            "output_op_compute_time_*.txt",
            "output_timeline_data_*.txt",
            "gpu_timeline_display_*.json",
            "timeline_display_*.json",
            *minddata.FILES,
            *mindspore_cpu.FILES,
        ),
    ),
    companions=_COMPANIONS,
    communication_files=(FilePatterns(_COMMUNICATION), _COMPANIONS),
    reader="paceline.formats.mindinsight.reader:READER",
)
