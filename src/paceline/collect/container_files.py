"""Which files `collect_data(data="HCCL")` copies out of a training container."""

from __future__ import annotations

from paceline.formats import ascend_db, ascend_text, mindinsight, msprof, rank_table
from paceline.formats.file_patterns import FilePatterns

# The formats by name, not through entry points: in a container Paceline may lie on a PYTHONPATH without being installed.
_FORMATS = (mindinsight.FORMAT, ascend_text.FORMAT, ascend_db.FORMAT, msprof.FORMAT, rank_table.FORMAT)
_LARGE_RAW_DATA = FilePatterns(("HCCL.*", "*hwts.data.join*"))
_MSADVISOR_FILES = FilePatterns(("ascend_timeline_display_*.json", "step_trace_raw_*_detail_time.csv"))


def needed_outside_container(key: str) -> bool:
    """Files that msadvisor's collect_data(data="HCCL") uploads from a rank's profiler directory, and those naming the rank.

    Raw data of PROF_* is copied too, except for the two large kinds: msadvisor keeps it to parse it again elsewhere.
    """
    if _LARGE_RAW_DATA.matches(key):
        return False
    first, _, rest = key.partition("/")
    if rest and first.startswith(("PROF_", "hccl_info_")):
        return True
    return _MSADVISOR_FILES.matches(key) or _holds_communication(key)


def _holds_communication(key: str) -> bool:
    chosen = (files for format in _FORMATS for files in format.communication_files)
    return any(files.matches(key) for files in chosen) and any(format.needs(key) for format in _FORMATS)
