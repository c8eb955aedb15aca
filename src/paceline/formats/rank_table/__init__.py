"""HCCL rank tables: which host and device each rank runs on."""

from paceline.formats.file_patterns import FilePatterns
from paceline.formats.format import Format

HOST_NAMES = "host_ips_mapping.txt"

FORMAT = Format(
    name="rank-table",
    preference=10,
    files=FilePatterns(
        names=("*.json",),
        not_below=("PROF_*", "kernel_meta", "msprof_tmp", "__pycache__"),
    ),
    companions=FilePatterns((HOST_NAMES,)),
    communication_files=(FilePatterns(("*hccl*.json", "*rank_table*.json", "*ranktable*.json", HOST_NAMES)),),
    reader="paceline.formats.rank_table.reader:READER",
)
