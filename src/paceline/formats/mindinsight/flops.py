"""FLOPs of one rank: flops_summary_{id}.json for the whole rank, flops_{id}.txt per operator.

Work is in 10^6 FLOP, rates in 10^9 FLOP/s, utilisation in per cent. Newer writers split both files into cube and
vector units.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.csv_files import read_text
from paceline.formats.units import number

_MEGA, _GIGA, _PERCENT = 1e6, 1e9, 0.01


class _Summary(msgspec.Struct):
    flops: float | None = msgspec.field(name="FLOPs", default=None)
    rate: float | None = msgspec.field(name="FLOPS", default=None)
    use: float | None = msgspec.field(name="FLOPS_Utilization", default=None)
    cube_flops: float | None = msgspec.field(name="cube_FLOPs", default=None)
    cube_rate: float | None = msgspec.field(name="cube_FLOPS", default=None)
    cube_use: float | None = msgspec.field(name="cube_FLOPS_Utilization", default=None)
    vector_flops: float | None = msgspec.field(name="vec_FLOPs", default=None)
    vector_rate: float | None = msgspec.field(name="vec_FLOPS", default=None)
    vector_use: float | None = msgspec.field(name="vec_FLOPS_Utilization", default=None)


def read_flops_summary(path: Path, sink: Sink) -> None:
    try:
        summary = msgspec.json.decode(read_text(path), type=_Summary)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(message("not_flops", error=error), file=path) from error
    for unit, flops, rate, use in (
        (None, summary.flops, summary.rate, summary.use),
        ("cube", summary.cube_flops, summary.cube_rate, summary.cube_use),
        ("vector", summary.vector_flops, summary.vector_rate, summary.vector_use),
    ):
        if flops is not None or rate is not None:
            sink.add(
                "flops",
                {
                    "unit": [unit],
                    "flops": [_times(flops, _MEGA)],
                    "flops_per_s": [_times(rate, _GIGA)],
                    "utilisation": [_times(use, _PERCENT)],
                },
            )


def read_flops_operators(path: Path, sink: Sink) -> None:
    """Columns `name, work, rate, utilisation`; the last three once, or once for cube and once for vector."""
    lines = read_text(path).splitlines()
    header = [cell.strip().lower() for cell in lines[0].split(",")]
    units = _units(header, path)
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[1:] if line.strip()]
    whole = [row for row in cells if len(row) >= len(header)]
    if len(whole) < len(cells):
        sink.warn(message("cut_rows", n=len(cells) - len(whole)), file=path)
    for index, unit in enumerate(units):
        first = 1 + 3 * index
        sink.add(
            "flops",
            {
                "name": [row[0] for row in whole],
                "unit": [unit] * len(whole),
                "flops": [_times(number(row[first]), _MEGA) for row in whole],
                "flops_per_s": [_times(number(row[first + 1]), _GIGA) for row in whole],
                "utilisation": [_times(number(row[first + 2]), _PERCENT) for row in whole],
            },
        )


def _units(header: list[str], path: Path) -> list[str | None]:
    """The unit of each group of three columns, from their names."""
    if len(header) == 4:
        return [None]
    if len(header) == 7:
        return ["vector" if "vec" in header[first] else "cube" for first in (1, 4)]
    raise FormatError(message("columns_47", n=len(header)), file=path, line=1)


def _times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit
