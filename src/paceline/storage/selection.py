"""Which files matter, by name alone: what is unfinished, what commits a checkpoint, what readers open.

Names decide because a remote tree is listed before anything of it is fetched. tests/storage/test_selection.py holds
these rules against the readers: every file a reader opens must be kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from paceline.storage.store import PARTIAL

Rule = Callable[[str], bool]

_UNFINISHED = (".tmp", PARTIAL, ".upload_record", ".download_record")
"""MindSpore writes <name>.tmp and renames it; the OBS SDK leaves its records beside the data."""

MARKERS = frozenset({"meta.json", "latest_checkpointed_iteration.txt", "paceline.json"})
"""Written last by whoever writes a checkpoint (or an export): seeing one means the rest is there."""

_RAW_DIRECTORY = re.compile(
    r"""(?:^|/)(?:
        PROF_[^/]*/(?:device_\d+|host)/(?:data|sqlite)   # counters as the device wrote them, and their databases
      | PROF_[^/]*/host/(?!info\.json)                   # host-side raw data
      | (?:logs|msprof_tmp|kernel_meta|__pycache__)
    )/?""",
    re.VERBOSE,
)
_RAW_NAME = re.compile(
    r"""(?:
        .*\.slice_\d+(?:\.done)?            # raw chunks of the driver
      | hwts\.data\..* | hwts\.log.* | .*\.data\.join
      | HCCL\..* | aicore\..*\.dev.* | training_trace\..* | (?:ts_track|ts_fw|l2_cache|ffts.*|npu.*mem|adprof)\.data.*
      | .*\.(?:bin|so|o|om|ckpt|safetensors|ptrace_temp|done|lock|log|png|jpg|html|air|meta)
    )""",
    re.VERBOSE,
)
_READABLE = re.compile(
    r".*(?:\.(?:json|csv|txt|db|parquet|trace|pb|yaml|yml|gz|tsv)|(?:info\.json|start_info|end_info)\.\w+)"
)

_HCCL = re.compile(
    r"""(?:.*/)?(?:
        ascend_timeline_display_\d+\.json | step_trace_raw_\d+_detail_time\.csv | hccl_raw_\d+\.csv
      | (?:ascend|gpu)_cluster_analyse_.*\.csv | profiler_info[^/]*\.json | profiler_metadata\.json
      | communication(?:_matrix|_group)?\.json | step_trace_time\.csv | cluster_[^/]*
      | hccl_info[^/]*/.*\.trace | hccl_\d+_\d+_\d+\.json | info\.json[^/]* | step_trace_[\d_]+\.(?:json|csv)
      | [^/]*hccl[^/]*\.json | [^/]*rank_?table[^/]*\.json | host_ips_mapping\.txt
      | (?:[^/]*communication_analyzer|analysis)\.db | msmonitor_[^/]*\.db | paceline\.json | [^/]*\.parquet
      | [^/]*\.pt\.trace\.json(?:\.gz)?      # torch keeps steps and communication nowhere else
    )""",
    re.VERBOSE,
)
_HCCL_OF_MSPROF = re.compile(
    r"(?!.*_ascend_(?:pt|ms)/)(?:.*/)?(?:mindstudio_profiler_output/msprof_[^/]*\.json|msprof_[^/]*\.db)"
)
"""Where msprof ran alone its timeline is the only place of communication; frameworks make files of their own from it."""


def is_unfinished(key: str) -> bool:
    """Still being written by somebody: never moved."""
    return key.endswith(_UNFINISHED)


def is_marker(key: str) -> bool:
    return key.rpartition("/")[2] in MARKERS


def for_diagnosis(key: str) -> bool:
    """What any reader may open: everything it can parse that is not raw device data."""
    name = key.rpartition("/")[2]
    if not name or _RAW_DIRECTORY.search(key) or _RAW_NAME.fullmatch(name):
        return False
    return bool(_READABLE.fullmatch(name))


def for_hccl(key: str) -> bool:
    """What tells steps and communication, nothing else."""
    return for_diagnosis(key) and bool(_HCCL.fullmatch(key) or _HCCL_OF_MSPROF.fullmatch(key))


_CONTAINER = re.compile(
    r"PROF_[^/]*/.* | hccl_info_[^/]*/.* | ascend_timeline_display_[^/]*\.json | step_trace_raw_[^/]*_detail_time\.csv",
    re.VERBOSE,
)


def for_container(key: str) -> bool:
    """What the original data="HCCL" uploads of a rank's profiler directory, and what names its rank.

    Raw data of PROF_* goes along except the two large kinds: the original keeps it for parsing again elsewhere.
    """
    name = key.rpartition("/")[2]
    if name.startswith("HCCL.") or "hwts.data.join" in name:
        return False
    return bool(_CONTAINER.fullmatch(key)) or for_hccl(key)


def everything(key: str) -> bool:
    return True


RULES: dict[str, Rule] = {"diagnosis": for_diagnosis, "hccl": for_hccl, "all": everything}
