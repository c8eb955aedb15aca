"""Metadata of a torch (Kineto) trace, read without its events: rank, world size, groups, host, time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from paceline.core.message import Sentence, message
from paceline.formats.chrome_trace.repaired_json import repaired
from paceline.formats.chrome_trace.trace_events import read_head, read_metadata
from paceline.storage.file_tree import File

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
    rb'|gpu_user_annotation|ac2g|fwdbwd|cpu_instant_event|mtia_runtime|mtia_ccp_events)"'
)
_FIRST_CATEGORY = re.compile(rb'"cat"\s*:\s*"(?:Operator|Runtime|Kernel|Memcpy|Memset)"')
"""Of the first traces with a schema version (torch 1.8), which have no other metadata."""
_OF_ASCEND = re.compile(rb'"(?:Ascend Hardware|CANN|HCCL|async_npu|HostToDevice|HostCpuOps|Overlap Analysis|enqueue)"')
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{6,16})(?:\.(\d{1,3}))?')
_RANK_IN_PATH = re.compile(r"rank[-_ ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_RANK_AT_END = re.compile(r"[-_.](\d{1,5})(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")
_HOST_AND_PROCESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252})_(\d{2,7})\.\d{13,19}\.pt\.trace\.json")
_TIME_IN_NAME = re.compile(r"\.(\d{13,19})\.pt\.trace\.json")


class DeviceProperties(msgspec.Struct):
    id: int = 0
    name: str = ""
    totalGlobalMem: int = 0


class ProcessGroup(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    pg_size: int = 0
    ranks: list[int] = []


@dataclass(frozen=True)
class TraceHead:
    """What is known about a trace without reading its events."""

    rank: int | None
    world: int
    host: str | None
    base: int
    """Nanoseconds to add to relative timestamps; 0 if the trace does not record it."""
    groups: tuple[ProcessGroup, ...]
    devices: tuple[DeviceProperties, ...]
    recorded: str
    notes: tuple[Sentence, ...]
    rank_assumed: bool = False
    is_rank_certain: bool = True
    """Whether the trace records its rank, or its path names it; otherwise it may be no rank of a job at all."""
    ambiguous_groups: frozenset[str] = frozenset()
    """Names that mean other ranks in other traces of the job."""


def is_kineto(file: File) -> bool:
    """Judged by content: keys of Kineto around the events, or torch's categories in them."""
    head = read_head(file.path)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"{" and b'"schemaVersion"' in head and any(key in head for key in _OF_KINETO):
        return True
    if start == b"{" and b'"traceEvents"' not in head:
        return False
    if start == b"{" and b'"schemaVersion"' in head and _FIRST_CATEGORY.search(head):
        return not _OF_ASCEND.search(head)
    return start in (b"{", b"[") and bool(_TORCH_CATEGORY.search(head)) and not _OF_ASCEND.search(head)


def read_trace_head(file: File) -> TraceHead:
    """Never fails: missing or invalid metadata becomes a note."""
    text = read_metadata(file.path)
    values = _decoded(text, dict[str, msgspec.Raw]) or _decoded(repaired(text), dict[str, msgspec.Raw]) or {}
    notes: list[Sentence] = []
    base = _value(values, "baseTimeNanoseconds", int, notes) or 0
    info = _value(values, "distributedInfo", dict[str, msgspec.Raw], notes) or {}
    rank = _value(info, "rank", int, notes)
    if rank is not None and not 0 <= rank < MAX_RANKS:
        notes.append(message("bad_rank", n=rank))
        rank = None
    world = _value(info, "world_size", int, notes) or 0
    return TraceHead(
        is_rank_certain=rank is not None or bool(_RANK_IN_PATH.search(file.relative)),
        rank=rank_in_name(file.relative) if rank is None else rank,
        world=world if 0 < world < MAX_RANKS else 0,
        host=_value(values, "host_name", str, notes)
        or _value(values, "hostname", str, notes)
        or _host_in_name(file.name, world),
        base=base if 0 < base < 1 << 62 else 0,
        groups=tuple(_value(info, "pg_config", list[ProcessGroup], notes) or ()),
        devices=tuple(_value(values, "deviceProperties", list[DeviceProperties], notes) or ()),
        recorded=_recorded(file, base),
        notes=tuple(notes),
    )


def _value(values: dict[str, msgspec.Raw], name: str, type: type[T], notes: list[Sentence]) -> T | None:
    """One value of the metadata; None and a note if it has the wrong type."""
    if name not in values or bytes(values[name]) == b"null":
        return None
    value = _decoded(values[name], type)
    if value is None:
        notes.append(message("bad_metadata", name=name))
    return value


def _decoded(data: bytes | msgspec.Raw, type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=type, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def rank_in_name(relative: str) -> int | None:
    """
    >>> rank_in_name("run/rank-3/trace.json"), rank_in_name("trace_7.pt.trace.json.gz"), rank_in_name("a.json")
    (3, 7, None)
    """
    named = _RANK_IN_PATH.findall(relative) or _RANK_AT_END.findall(relative)
    return int(named[-1]) if named else None


def _host_in_name(name: str, world: int) -> str | None:
    """From file names as torch writes them, HOST_PID.TIME.pt.trace.json; small numbers are ranks, not process ids.

    >>> _host_in_name("node02_10008.1794893025574784796.pt.trace.json", 16)
    'node02'
    >>> _host_in_name("worker_3.1794893025574784796.pt.trace.json", 16)
    """
    named = _HOST_AND_PROCESS.match(name)
    return named[1] if named and int(named[2]) > max(world, 1) else None


def _recorded(file: File, base: int) -> str:
    """Nanoseconds as sortable text: of the first event, from the file name, or the modification time."""
    if found := _TIME.search(read_head(file.path)):
        first = int(found[1]) * 1000 + int((found[2] or b"0").ljust(3, b"0"))
        return f"{first + base if first < base else first:020d}"
    if named := _TIME_IN_NAME.search(file.name):
        return f"{int(named[1].ljust(19, '0')):020d}"
    return f"{file.mtime_ns:020d}"
