"""Floating point work: per operator and rank, the rate it runs at, and model FLOPs utilisation (MFU).

    matrix product (m × k)(k × n), b times:   FLOPs = 2 · b · m · k · n = 2 · √(|A| · |B| · |C| / b)

where |·| counts the elements of a tensor. The second form needs neither layout nor transposition, so it also holds for
fractal formats. b is 1 unless both factors are batched; it is then the product of the output's leading dimensions.

    rate(r) = FLOPs of rank r per step / mean step time of r
    MFU(r)  = rate(r) / peak rate of one card

Where a recording counts FLOPs itself (MindInsight: one pass over the graph) that count is one step's work. Else only
matrix products with recorded shapes are counted: rate and MFU are then lower bounds, as convolutions, attention kernels
and vector work are left out.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from paceline.metrics.table import Source, Table

RECORDED, COUNTED = "recorded", "matrix products"
_MATMUL = "regexp_full_match(type, '(?i)(batch)?mat_?mul(v[0-9]+)?')"
_MOST_DIMENSIONS = 8


def rank_flops(run: Source, chosen: str, peak_rate: float | None = None) -> Table:
    """Per rank: FLOPs per step, step in ms, rate in FLOP/s, mfu (nan when no peak rate is known), and where it is from.

    `basis` is RECORDED or COUNTED.
    """
    recorded = dict(
        run.sql("SELECT rank, sum(flops) FROM flops WHERE name IS NULL AND flops > 0 GROUP BY rank").fetchall()
    )
    walls = {
        rank: (steps, duration)
        for rank, steps, duration in run.sql(
            f"SELECT rank, count(DISTINCT step), avg(duration) FROM steps WHERE {chosen} AND duration > 0 GROUP BY rank"
        ).fetchall()
    }
    counted: dict[int, float] = {}
    for rank, kind, inputs, outputs, count, _ in _products(run, chosen):
        counted[rank] = counted.get(rank, 0.0) + count * (matmul_flops(kind, inputs, outputs) or 0.0)
    ranks = sorted(walls.keys() & (recorded.keys() | {rank for rank, flops in counted.items() if flops}))
    work = np.array([recorded.get(rank) or counted[rank] / walls[rank][0] for rank in ranks], dtype=np.float64)
    step = np.array([walls[rank][1] for rank in ranks], dtype=np.float64)
    rate = work / step * 1e9
    return Table(
        {
            "rank": np.array(ranks, dtype=np.float64),
            "flops": work,
            "step": step / 1e6,
            "rate": rate,
            "mfu": rate / (peak_rate or math.nan),
        },
        {"basis": [RECORDED if rank in recorded else COUNTED for rank in ranks]},
    )


def operator_flops(run: Source, chosen: str) -> Table:
    """Matrix products by rank, type and shapes: executions, FLOPs of one, time of all in ms, rate in FLOP/s.

    rate = executions · FLOPs of one / time of all
    """
    rows = [(row, flops) for row in _products(run, chosen) if (flops := matmul_flops(row[1], row[2], row[3]))]
    count = np.array([row[4] for row, _ in rows], dtype=np.float64)
    time = np.array([row[5] for row, _ in rows], dtype=np.float64)
    each = np.array([flops for _, flops in rows], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(time > 0, count * each / time * 1e9, np.nan)
    return Table(
        {
            "rank": np.array([row[0] for row, _ in rows], dtype=np.float64),
            "count": count,
            "flops": each,
            "time": time / 1e6,
            "rate": rate,
        },
        {"type": [row[1] for row, _ in rows], "shapes": [row[2] for row, _ in rows]},
    )


def flops_rows(run: Source, chosen: str, peak_rate: float | None) -> Table:
    """Work per step of each rank (name null) and of its operators: as recorded, else counted from matrix products.

    rank, name, unit, flops, flops_per_s, utilisation (of the peak rate, unknown where that is), basis; of ranks also mfu,
    which is the same for all of them: rate / peak rate, see the head of the file.
    """
    ranks = rank_flops(run, chosen, peak_rate)
    mfu = dict(zip(ranks.numbers["rank"].tolist(), ranks.numbers["mfu"].tolist(), strict=True))
    recorded = run.sql("SELECT rank, name, unit, flops, flops_per_s, utilisation FROM flops ORDER BY ALL").fetchall()
    rows = [(*row, RECORDED) for row in recorded]
    known = {row[0] for row in rows}
    counted = zip(*(ranks.numbers[name].tolist() for name in ("rank", "flops", "rate", "mfu")), strict=True)
    rows += [(int(rank), None, None, *more, COUNTED) for rank, *more in counted if rank not in known]
    rows += [row for row in _operator_rows(run, chosen, peak_rate) if row[0] not in known]
    numbers = {
        name: np.array([np.nan if row[at] is None else row[at] for row in rows], dtype=np.float64)
        for at, name in ((0, "rank"), (3, "flops"), (4, "flops_per_s"), (5, "utilisation"))
    }
    numbers["mfu"] = np.array([mfu.get(row[0], np.nan) if row[1] is None else np.nan for row in rows], dtype=np.float64)
    return Table(numbers, {name: [row[at] for row in rows] for at, name in ((1, "name"), (2, "unit"), (6, "basis"))})


FLOPS_BY_RANK = """
    SELECT rank, sum(flops) AS flops, sum(flops_per_s) AS flops_per_s, max(utilisation) AS utilisation,
           any_value(basis) AS basis
    FROM flops WHERE name IS NULL GROUP BY rank
"""
"""All units of a rank together, from `flops_rows`: work and rates add up, the utilisation is that of the busiest unit."""


def _operator_rows(run: Source, chosen: str, peak_rate: float | None) -> list[tuple[Any, ...]]:
    """Matrix products by rank, type and shapes, per step."""
    found = operator_flops(run, chosen)
    steps = dict(
        run.sql(
            f"SELECT rank, count(DISTINCT step) FROM steps WHERE {chosen} AND duration > 0 GROUP BY rank"
        ).fetchall()
    )
    numbers = (found.numbers[name].tolist() for name in ("rank", "count", "flops", "rate"))
    rows = []
    for rank, count, flops, rate, kind, shapes in zip(
        *numbers, found.texts["type"], found.texts["shapes"], strict=True
    ):
        name = f"{kind} [{(shapes or '').replace(chr(34), '').replace(';', '] × [')}]"
        if steps.get(rank) and not math.isnan(rate):
            per_step, share = count * flops / steps[rank], rate / (peak_rate or math.nan)
            rows.append((int(rank), name, None, per_step, rate, share, COUNTED))
    return rows


@lru_cache(maxsize=4096)
def matmul_flops(kind: str, inputs: str, outputs: str) -> float | None:
    """FLOPs of one matrix product, None where its shapes do not tell.

    >>> matmul_flops("MatMulV2", "1024,2048;2048,3072", "1024,3072") == 2 * 1024 * 2048 * 3072
    True
    >>> matmul_flops("BatchMatMulV2", "8,64,128;8,128,64", "8,64,64") == 2 * 8 * 64 * 128 * 64
    True
    """
    shapes = [_shape(text) for text in inputs.split(";")[:2]]
    output = _shape(outputs.split(";")[0])
    if len(shapes) < 2 or not all(shapes) or not output:
        return None
    batched = kind.lower().startswith("batch") and all(len(shape) > 2 for shape in shapes)
    batch = math.prod(output[:-2]) if batched else 1
    squared, rest = divmod(math.prod(shapes[0]) * math.prod(shapes[1]) * math.prod(output), batch)
    root = math.isqrt(squared)
    # Anything but a whole root is no product of these three tensors.
    return 2.0 * root if not rest and root * root == squared else None


def _products(run: Source, chosen: str) -> list[tuple[int, str, str, str, int, int]]:
    """(rank, type, input shapes, output shapes, executions, ns) of matrix products with recorded shapes."""
    return run.sql(
        f"""
        SELECT rank, type, input_shapes, output_shapes, count(*), sum(duration)::BIGINT FROM kernels
        WHERE {chosen} AND {_MATMUL} AND input_shapes IS NOT NULL AND output_shapes IS NOT NULL
        GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()


def _shape(text: str) -> tuple[int, ...]:
    """ "4096,8192" → (4096, 8192); () when it is none."""
    sizes = text.strip().strip('"').split(",")
    if len(sizes) > _MOST_DIMENSIONS or not all(size.strip().isdecimal() and len(size) < 16 for size in sizes):
        return ()
    return tuple(int(size) for size in sizes)
