"""hccl_raw_{id}.csv: MindSpore's summary of HCCL's task traces per step and operator, in two generations of units.

                     costs of steps and operators   link time   link size      SDMA bandwidth
    MindSpore ≤ 2.0  ms, main stream                ms          KB = 1,000 B   KB/s
    MindSpore ≥ 2.1  µs, summed over all planes     ms          KB = 1,000 B   GB/s

Bandwidth is only used to distinguish the generations: the recorded one is a sum over operators. The "-" row is an
average (≤ 2.0) or a copy of the last step (≥ 2.1) and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_lines
from paceline.formats.hccl.execution import CollectiveExecution, LinkTransfer, transport_of
from paceline.formats.hccl.operator_names import display_names, op_named
from paceline.formats.units import scaled, whole

T = TypeVar("T")

Links = dict[str, dict[str, list[float | None]]]
Operator = tuple[str | float, float, float, Links]

_MILLISECOND, _MICROSECOND, _KB = 1e6, 1e3, 1e3

_LINKS = msgspec.json.Decoder(Links)
_OPERATORS = msgspec.json.Decoder(dict[str, Operator])


@dataclass(frozen=True)
class _Row:
    step: int
    links: Links
    operators: dict[str, Operator]


@dataclass(frozen=True)
class HcclRaw:
    executions: tuple[CollectiveExecution, ...]
    step_links: tuple[tuple[int, tuple[LinkTransfer, ...]], ...] = field(default=())
    """(step, links) of steps whose operators were not recorded."""


def read_hccl_raw(path: Path, sink: Sink) -> HcclRaw:
    recorded = list(_read_rows(path, sink))
    unit = _cost_unit(recorded, path, sink)
    names = display_names(dict.fromkeys(name for row in recorded for name in row.operators))
    return HcclRaw(
        tuple(
            _execution(names[name], row.step, cost, unit) for row in recorded for name, cost in row.operators.items()
        ),
        tuple((row.step, tuple(_links(row.links, "other"))) for row in recorded if row.links and not row.operators),
    )


def _read_rows(path: Path, sink: Sink) -> Iterator[_Row]:
    for line, cells in csv_lines(path, sink):
        step = scaled(cells.get("step_num"), 1)
        if cells.get("step_num", "").strip() == "-":
            continue
        if step is None:
            raise FormatError(message("no_step_num"), file=path, line=line)
        links = _decoded(_LINKS, cells.get("link_info"))
        operators = _decoded(_OPERATORS, cells.get("communication_operator_cost"))
        if links is None or operators is None:
            sink.warn(message("part_not_json", n=step), file=path, line=line)
        yield _Row(step, links or {}, operators or {})


def _decoded(decoder: msgspec.json.Decoder[dict[str, T]], cell: str | None) -> dict[str, T] | None:
    """JSON, or what MindSpore 1.3 wrote instead: Python's repr, with NaN if nothing was moved."""
    if not cell or not cell.strip():
        return {}
    for text in (
        cell,
        cell.replace("'", '"').replace("NaN", "null").replace("Infinity", "null").replace("nan", "null"),
    ):
        try:
            return decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            continue
    return None


# -- units ------------------------------------------------------------------------------------------------------------


def _cost_unit(recorded: Sequence[_Row], path: Path, sink: Sink) -> float:
    """ns per recorded unit of cost: ms or µs.

    Costs and link times describe the same tasks: cost / Σ link time is ≤ 1 in ms, ≥ 1,000 in µs. SDMA bandwidth ·
    time / size is 1,000 in KB/s and 0.001 in GB/s.
    """
    by_cost, by_bandwidth = _micro_by_cost(recorded), _micro_by_bandwidth(recorded)
    if by_cost is not None and by_bandwidth is not None and by_cost != by_bandwidth:
        sink.warn(message("units_differ"), file=path)
    votes = [vote for vote in (by_cost, by_bandwidth) if vote is not None]
    if not votes and any(row.operators for row in recorded):
        sink.warn(message("unit_assumed"), file=path)
    return _MICROSECOND if votes and votes[0] else _MILLISECOND


def _micro_by_cost(recorded: Iterable[_Row]) -> bool | None:
    cost = time = 0.0
    for row in recorded:
        for _, transit, _, links in row.operators.values():
            moving = sum(values[0] or 0 for by_type in links.values() for values in by_type.values() if values)
            if moving > 0:
                cost, time = cost + transit, time + moving
    return cost / time > 30 if time > 0 and cost > 0 else None


def _micro_by_bandwidth(recorded: Iterable[_Row]) -> bool | None:
    votes = 0
    for row in recorded:
        for by_type in row.links.values():
            values = by_type.get("SDMA") or []
            if len(values) >= 3 and all(values[:3]):
                time, size, bandwidth = (value or 0.0 for value in values[:3])
                votes += 1 if bandwidth * time / size < 1 else -1
    return votes > 0 if votes else None


# -- rows -------------------------------------------------------------------------------------------------------------


def _execution(name: str, step: int, cost: Operator, unit: float) -> CollectiveExecution:
    """An operator runs once per step, so that its n-th execution in the recording is that of step n."""
    _, transit, wait, links = cost
    op = op_named(name)
    return CollectiveExecution(
        name=name,
        op=op,
        sequence=step,
        step=step,
        transit=whole(transit * unit),
        wait=whole(wait * unit),
        links=tuple(_links(links, op)),
    )


def _links(recorded: Mapping[str, Mapping[str, Sequence[float | None]]], op: str) -> Iterator[LinkTransfer]:
    for pair, by_type in recorded.items():
        ends = pair.split("-")
        if len(ends) != 2 or not (ends[0].isdecimal() and ends[1].isdecimal()):
            continue
        src, dst = int(ends[0]), int(ends[1])
        for kind, values in by_type.items():
            time, size, wait = _at(values, 0), _at(values, 1), _at(values, 3)
            if time is None:
                continue
            moved = None if size is None else whole(size * _KB)
            yield LinkTransfer(
                src,
                dst,
                transport_of(kind, src, dst, op),
                moved,
                whole(time * _MILLISECOND) or 0,
                whole((wait or 0.0) * _MILLISECOND) or 0,
            )


def _at(values: Sequence[float | None], index: int) -> float | None:
    return values[index] if index < len(values) else None
