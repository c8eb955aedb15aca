"""Floating point work: per operator and rank, the rate it runs at, and model FLOPs utilisation (MFU).

    matrix product (m × k)(k × n), b times:   FLOPs = 2 · b · m · k · n = 2 · √(|A| · |B| · |C| / b)

where |·| counts the elements of a tensor. The second form needs neither layout nor transposition, so it also holds for
fractal formats. b is 1 unless both factors are batched; it is then the product of the output's leading dimensions.

    rate(r) = FLOPs of rank r a step / mean step time of r
    MFU(r)  = rate(r) / peak rate of one card

Where a recording counts FLOPs itself (MindInsight: one pass over the graph) that count is one step's work. Else only
matrix products with recorded shapes are counted: rate and MFU are then lower bounds, as convolutions, attention kernels
and vector work are left out.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from paceline.analysis.table import Source, Table

_MATMUL = "regexp_full_match(type, '(?i)(batch)?mat_?mul(v[0-9]+)?')"
_MOST_DIMENSIONS = 8


def rank_flops(run: Source, chosen: str, peak_rate: float | None = None) -> Table:
    """Per rank: FLOPs a step, step in ms, rate in FLOP/s, mfu (nan when no peak rate is known), and where it is from.

    `basis` is "recorded" or "matrix products".
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
            "rank": np.array(ranks, dtype=np.float64), "flops": work, "step": step / 1e6, "rate": rate,
            "mfu": rate / (peak_rate or math.nan),
        },
        {"basis": ["recorded" if rank in recorded else "matrix products" for rank in ranks]},
    )  # fmt: skip


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
        {"rank": np.array([row[0] for row, _ in rows], dtype=np.float64), "count": count, "flops": each,
         "time": time / 1e6, "rate": rate},
        {"type": [row[1] for row, _ in rows], "shapes": [row[2] for row, _ in rows]},
    )  # fmt: skip


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
