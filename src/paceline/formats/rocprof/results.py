"""What a results file of rocprofv3 holds (`--output-format json`), decoded without what is not used.

Times are nanoseconds since the host booted. A record names its operation by two numbers, of which `strings` knows the names; a
kernel and the call that launched it have one internal correlation id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.chrome_trace.trace_events import is_gzip, unpacked

MAX_BYTES = 4 << 30
_TOOL = "rocprofiler-sdk-tool"
_GPU = 2
"""Type of an agent."""


class Handle(msgspec.Struct, gc=False):
    handle: int = -1


class Correlation(msgspec.Struct, gc=False):
    internal: int = 0


class Dispatch(msgspec.Struct, gc=False):
    agent_id: Handle = msgspec.field(default_factory=Handle)
    queue_id: Handle = msgspec.field(default_factory=Handle)
    kernel_id: int = -1


class Record(msgspec.Struct, gc=False):
    """A call, a range, a copy or a kernel."""

    kind: int = -1
    operation: int = -1
    thread_id: int = 0
    correlation_id: Correlation = msgspec.field(default_factory=Correlation)
    start_timestamp: int = 0
    end_timestamp: int = 0
    dispatch_info: Dispatch | None = None
    stream_id: Handle = msgspec.field(default_factory=Handle)
    src_agent_id: Handle = msgspec.field(default_factory=Handle)
    dst_agent_id: Handle = msgspec.field(default_factory=Handle)
    bytes: int | None = None


class Agent(msgspec.Struct, gc=False):
    id: Handle = msgspec.field(default_factory=Handle)
    type: int = 0
    name: str = ""
    product_name: str = ""
    logical_node_type_id: int = -1


class KernelSymbol(msgspec.Struct, gc=False):
    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Operations(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class Marker(msgspec.Struct, gc=False):
    key: int = -1
    value: str = ""


class Strings(msgspec.Struct):
    buffer_records: list[Operations] = []
    marker_api: list[Marker] = []


class Records(msgspec.Struct):
    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    hsa_api: list[Record] = []
    rccl_api: list[Record] = []
    marker_api: list[Record] = []


class Node(msgspec.Struct):
    hostname: str = ""


class Metadata(msgspec.Struct):
    node: Node = msgspec.field(default_factory=Node)
    pid: int = 0
    init_time: int = 0


class Results(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    agents: list[Agent] = []
    kernel_symbols: list[KernelSymbol] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    buffer_records: Records = msgspec.field(default_factory=Records)

    def devices(self) -> dict[int, int]:
        """Handle of an agent → number of the GPU on its host."""
        return {agent.id.handle: agent.logical_node_type_id for agent in self.agents if agent.type == _GPU}

    def cards(self) -> dict[int, str]:
        """Number of a GPU → its model."""
        found = {
            agent.logical_node_type_id: agent.product_name or agent.name for agent in self.agents if agent.type == _GPU
        }
        return {number: name for number, name in found.items() if name}

    def kernel_names(self) -> dict[int, str]:
        return {each.kernel_id: each.formatted_kernel_name or each.kernel_name for each in self.kernel_symbols}

    def name_of(self, record: Record) -> str:
        """Name of a call: hipLaunchKernel."""
        kinds = self.strings.buffer_records
        names = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
        return names[record.operation] if 0 <= record.operation < len(names) else "?"


class _File(msgspec.Struct):
    processes: list[Results] = msgspec.field(default_factory=list, name=_TOOL)


def read_results(path: Path) -> list[Results]:
    """One per process: usually one."""
    data = b"".join(unpacked(path)) if is_gzip(path) else path.read_bytes()
    if len(data) > MAX_BYTES:
        raise FormatError(message("larger_rocprof", size=f"{MAX_BYTES >> 30} GiB"), file=path)
    try:
        return msgspec.json.decode(data, type=_File).processes
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(message("rocprof", error=error), file=path) from error


def read_metadata(head: bytes) -> Metadata | None:
    """What a file begins with, from its first bytes."""
    start = head.find(b'"metadata"')
    brace = head.find(b"{", start)
    if start < 0 or brace < 0:
        return None
    for end in _closing_braces(head, brace):
        try:
            return msgspec.json.decode(head[brace:end], type=Metadata)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return None


def _closing_braces(text: bytes, start: int) -> list[int]:
    return [at + 1 for at in range(start, len(text)) if text[at : at + 1] == b"}"][:_MOST_OBJECTS]


_MOST_OBJECTS = 64
Columns = dict[str, list[Any]]
