"""What the head of a torch (Kineto) trace tells before its events are read: rank, world, groups, host, time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from paceline.formats.trace_events import read_head, read_metadata
from paceline.storage.tree import File

T = TypeVar("T")

MAX_RANKS = 10_000_000

_OF_KINETO = (
    b'"deviceProperties"',
    b'"distributedInfo"',
    b'"baseTimeNanoseconds"',
    b'"record_shapes"',
    b'"with_stack"',
)
_TORCH_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|kernel|gpu_memcpy|gpu_memset|cuda_runtime|cuda_driver|python_function'
    rb'|gpu_user_annotation|ac2g|fwdbwd|cpu_instant_event)"'
)
_OF_ASCEND = re.compile(rb'"(?:Ascend Hardware|CANN|HCCL|async_npu|HostToDevice|HostCpuOps|Overlap Analysis|enqueue)"')
_ASCEND_NAME = re.compile(
    r"(?:^|/)(?:ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output|PROF_[^/]*|FRAMEWORK|ASCEND_WORK_PATH)/"
    r"|(?:^|/)(?:trace_view|msprof|ascend_timeline|task_time|step_trace|hccl|profiler_info|profiler_metadata"
    r"|communication|pipeline_profiling|minddata)[^/]*$"
)
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{6,16})(?:\.(\d{1,3}))?')
_RANK_IN_PATH = re.compile(r"rank[-_ ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_RANK_AT_END = re.compile(r"[-_.](\d{1,5})(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_HOST_AND_PROCESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252})_(\d{2,7})\.\d{13,19}\.pt\.trace\.json")
_TIME_IN_NAME = re.compile(r"\.(\d{13,19})\.pt\.trace\.json")


class ProcessGroup(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    pg_size: int = 0
    ranks: list[int] = []


@dataclass(frozen=True)
class Head:
    """Everything known about a trace without its events."""

    rank: int | None
    world: int
    host: str | None
    base: int
    """Nanoseconds to add to timestamps that are relative; 0 when the trace does not tell."""
    groups: tuple[ProcessGroup, ...]
    recorded: str
    notes: tuple[str, ...]


def might_be_trace(file: File) -> bool:
    """By name: JSON that no Ascend tool is known to write."""
    return file.name.endswith((".json", ".json.gz")) and not _ASCEND_NAME.search(file.relative)


def is_kineto(file: File) -> bool:
    """By content: Kineto's own keys around the events, or torch's categories inside them."""
    head = read_head(file.path)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"{" and b'"schemaVersion"' in head and any(key in head for key in _OF_KINETO):
        return True
    if start == b"{" and b'"traceEvents"' not in head:
        return False
    return start in (b"{", b"[") and bool(_TORCH_CATEGORY.search(head)) and not _OF_ASCEND.search(head)


def read_trace_head(file: File) -> Head:
    """Never fails: metadata that is missing or wrong is said in the notes."""
    pieces = _decoded(read_metadata(file.path), dict[str, msgspec.Raw]) or {}
    notes: list[str] = []
    base = _piece(pieces, "baseTimeNanoseconds", int, notes) or 0
    info = _piece(pieces, "distributedInfo", dict[str, msgspec.Raw], notes) or {}
    rank = _piece(info, "rank", int, notes)
    if rank is not None and not 0 <= rank < MAX_RANKS:
        notes.append(f"distributedInfo says rank {rank}; passed over")
        rank = None
    world = _piece(info, "world_size", int, notes) or 0
    return Head(
        rank=_rank_in_name(file.relative) if rank is None else rank,
        world=world if 0 < world < MAX_RANKS else 0,
        host=_piece(pieces, "host_name", str, notes)
        or _piece(pieces, "hostname", str, notes)
        or _host_in_name(file.name, world),
        base=base if 0 < base < 1 << 62 else 0,
        groups=tuple(_piece(info, "pg_config", list[ProcessGroup], notes) or ()),
        recorded=_recorded(file, base),
        notes=tuple(notes),
    )


def _piece(pieces: dict[str, msgspec.Raw], name: str, type: type[T], notes: list[str]) -> T | None:
    """One value of the metadata; None, and a note, when it is of another kind than it should be."""
    if name not in pieces or bytes(pieces[name]) == b"null":
        return None
    value = _decoded(pieces[name], type)
    if value is None:
        notes.append(f"{name} of the trace's metadata is not understood; passed over")
    return value


def _decoded(data: bytes | msgspec.Raw, type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=type, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _rank_in_name(relative: str) -> int | None:
    """
    >>> _rank_in_name("run/rank-3/trace.json"), _rank_in_name("trace_7.pt.trace.json.gz"), _rank_in_name("a.json")
    (3, 7, None)
    """
    named = _RANK_IN_PATH.findall(relative) or _RANK_AT_END.findall(relative)
    return int(named[-1]) if named else None


def _host_in_name(name: str, world: int) -> str | None:
    """From torch's own file names, HOST_PID.TIME.pt.trace.json; small numbers are ranks that somebody put there.

    >>> _host_in_name("node02_10008.1794893025574784796.pt.trace.json", 16)
    'node02'
    >>> _host_in_name("worker_3.1794893025574784796.pt.trace.json", 16)
    """
    named = _HOST_AND_PROCESS.match(name)
    return named[1] if named and int(named[2]) > max(world, 1) else None


def _recorded(file: File, base: int) -> str:
    """Nanoseconds as sortable text: of the first event, else from the file's name, else when it was written."""
    if found := _TIME.search(read_head(file.path)):
        first = int(found[1]) * 1000 + int((found[2] or b"0").ljust(3, b"0"))
        return f"{first + base if first < base else first:020d}"
    if named := _TIME_IN_NAME.search(file.name):
        return f"{int(named[1].ljust(19, '0')):020d}"
    return f"{file.mtime_ns:020d}"
