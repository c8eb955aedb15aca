"""Device memory of one rank as MindSpore planned it: memory_usage_{id}.pb, or the JSON files that are made from it.

    memory at node i = static + Σ size of tensors alive at node i        (theoretical, not measured)

Sizes in the JSON files are GiB = 2^30 B. The protobuf message (proto3):

    MemoryProto     { repeated GraphMemProto graph_mem = 1; uint64 total_mem = 2 }
    GraphMemProto   { int64 graph_id = 1, static_mem = 2; repeated NodeMemProto node_mems = 3;
                      repeated TensorMemProto tensor_mems = 4; string fp_start = 5, bp_end = 6 }
    NodeMemProto    { string node_name = 1; uint64 node_id = 2; … }
    TensorMemProto  { uint64 tensor_id = 1, size = 2; string type = 3; uint64 life_start = 4, life_end = 5;
                      string life_long = 6 }
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message as sentence
from paceline.core.protobuf import fields, integer, message, text
from paceline.formats.base import Sink
from paceline.formats.csv_files import read_text
from paceline.formats.units import whole

T = TypeVar("T")

GIB = 1 << 30
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class MemoryFiles:
    plan: Path | None
    summary: Path | None
    details: Path | None


@dataclass(frozen=True)
class MemoryUsage:
    """Memory of one rank (bytes)."""

    peak: int | None
    capacity: int | None
    static: int | None


@dataclass(frozen=True)
class GraphMemory:
    """Memory at each node of one graph (bytes)."""

    names: tuple[str, ...]
    positions: tuple[int, ...]
    used: tuple[int, ...]
    static: int


def read_memory(files: MemoryFiles, sink: Sink) -> None:
    """Use MindSpore's results (JSON) first, its plan for the rest.

    A damaged file is a warning; only what no other file has is missing.
    """
    details = _attempt(read_details, files.details, sink)
    summary = _attempt(read_summary, files.summary, sink)
    graphs, usage = details or (), summary
    if not (details and summary) and (plan := _attempt(read_plan, files.plan, sink)):
        graphs, capacity = details or plan[0], plan[1]
        usage = summary or _usage(graphs, capacity)
    _add(graphs, usage or _usage(graphs, None), sink)


def _attempt(read: Callable[[Path], T], path: Path | None, sink: Sink) -> T | None:
    try:
        return read(path) if path else None
    except FormatError as error:
        sink.warn(error.said, file=path)
        return None


def _add(graphs: Iterable[GraphMemory], usage: MemoryUsage | None, sink: Sink) -> None:
    for graph in graphs:
        sink.add(
            "memory",
            {
                "kind": ["node"] * len(graph.names),
                "name": list(graph.names),
                "position": list(graph.positions),
                "allocated": list(graph.used),
            },
        )
    if usage is not None:
        sink.add(
            "ranks_memory",
            {
                "peak": [usage.peak],
                "capacity": [usage.capacity],
                "static": [usage.static],
                "basis": ["theoretical"],
            },
        )


def _usage(graphs: Iterable[GraphMemory], capacity: int | None) -> MemoryUsage | None:
    peaks = [(max(graph.used), graph.static) for graph in graphs if graph.used]
    return MemoryUsage(max(peaks)[0], capacity, max(peaks)[1]) if peaks else None


# -- JSON -------------------------------------------------------------------------------------------------------------


class _Summary(msgspec.Struct):
    capacity: float | None = None
    peak: float | None = msgspec.field(name="peak_mem", default=None)
    static: float | None = msgspec.field(name="static_mem", default=None)


class _Node(msgspec.Struct):
    name: str = ""
    fullname: str = ""
    node_id: int | None = None


class _Details(msgspec.Struct):
    static: float = msgspec.field(name="static_mem", default=0.0)
    nodes: list[_Node] = []
    lines: list[float] = []


_SUMMARY = msgspec.json.Decoder(_Summary)
_DETAILS = msgspec.json.Decoder(dict[str, _Details])


def read_summary(path: Path) -> MemoryUsage:
    summary = _decoded(_SUMMARY, path)
    return MemoryUsage(_bytes(summary.peak), _bytes(summary.capacity), _bytes(summary.static))


def read_details(path: Path) -> tuple[GraphMemory, ...]:
    return tuple(_graph(details) for details in _decoded(_DETAILS, path).values())


def _decoded(decoder: msgspec.json.Decoder[T], path: Path) -> T:
    try:
        return decoder.decode(read_text(path))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(sentence("not_named_brackets", error=error), file=path) from error


def _graph(details: _Details) -> GraphMemory:
    """Names and memory at each node; of more than 2,000 nodes MindSpore records every n-th."""
    used = [_bytes(value) or 0 for value in details.lines]
    nodes = details.nodes[: len(used)] + [_Node()] * (len(used) - len(details.nodes))
    positions = [index if node.node_id is None else node.node_id for index, node in enumerate(nodes)]
    names = tuple(node.fullname or node.name for node in nodes)
    return GraphMemory(names, tuple(positions), tuple(used), _bytes(details.static) or 0)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else whole(gib * GIB)


# -- the plan ---------------------------------------------------------------------------------------------------------


@dataclass
class _Tensor:
    size: int = 0
    start: int = 0
    end: int = 0
    life: str = "LifeLongNone"


def read_plan(path: Path) -> tuple[tuple[GraphMemory, ...], int | None]:
    """The graphs in memory_usage_{id}.pb, and the capacity of the device."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(sentence("more_refused", size=f"{MAX_BYTES >> 20} MiB"), file=path)
    graphs: list[GraphMemory] = []
    capacity: int | None = None
    try:
        for number, value in fields(memoryview(path.read_bytes())):
            if number == 1:
                graphs.append(_planned(message(value)))
            elif number == 2:
                capacity = integer(value)
    except FormatError as error:
        raise FormatError(error.said, file=path) from error
    if not graphs and capacity is None:
        raise FormatError(sentence("empty"), file=path)
    return tuple(graphs), capacity


def _planned(graph: memoryview) -> GraphMemory:
    static = 0
    nodes: list[tuple[int, str]] = []
    tensors: list[_Tensor] = []
    for number, value in fields(graph):
        if number == 2:
            static = integer(value)
        elif number == 3:
            nodes.append(_node(message(value)))
        elif number == 4:
            tensors.append(_tensor(message(value)))
    nodes.sort()
    positions = tuple(position for position, _ in nodes)
    used = memory_at(positions, [(one.size, one.start, one.end, one.life) for one in tensors])
    names = tuple(name for _, name in nodes)
    if any(abs(static + value) >= 2**63 for value in used):
        raise FormatError(sentence("sizes_64"))
    return GraphMemory(names, positions, tuple(static + value for value in used), static)


def memory_at(positions: Sequence[int], tensors: Iterable[tuple[int, int, int, str]]) -> list[int]:
    """Σ size of the tensors (size, first node, last node, lifetime) alive at each of the sorted positions."""
    change = [0] * (len(positions) + 1)
    for size, start, end, life in tensors:
        first = 0 if life in ("LifeLongGraphAll", "LifeLongGraphStart") else bisect_left(positions, start)
        last = len(positions) if life in ("LifeLongGraphAll", "LifeLongGraphEnd") else bisect_right(positions, end)
        if first < last:
            change[first] += size
            change[last] -= size
    return list(accumulate(change[:-1]))


def _node(node: memoryview) -> tuple[int, str]:
    position, name = 0, ""
    for number, value in fields(node):
        if number == 1:
            name = text(value)
        elif number == 2:
            position = integer(value)
    return position, name


def _tensor(tensor: memoryview) -> _Tensor:
    result = _Tensor()
    for number, value in fields(tensor):
        if number == 2:
            result.size = integer(value)
        elif number == 4:
            result.start = integer(value)
        elif number == 5:
            result.end = integer(value)
        elif number == 6:
            result.life = text(value)
    return result
