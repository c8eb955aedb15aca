"""FLOPs of ranks whose recording does not count them: worked out from the shapes of their matrix products."""

from __future__ import annotations

import numpy as np

from paceline.analysis.flops import operator_flops, rank_flops
from paceline.run.run import Run

RECORDED, COUNTED = "recorded", "matrix products"
_ALL = "step IS NOT NULL"


def add_flops(run: Run, peak_rate: float | None) -> None:
    """Rows for `web.flops`, a step's work each: whole ranks, then their operators by type and shapes.

    utilisation = rate / `peak_rate` (FLOP/s of one card); unknown where that is.
    """
    _add_ranks(run, peak_rate)
    _add_operators(run, peak_rate)


def _add_ranks(run: Run, peak_rate: float | None) -> None:
    found = rank_flops(run, _ALL, peak_rate)
    counted = {**found.numbers, "basis": np.array(found.texts["basis"], dtype=object)}
    _insert(
        run,
        counted,
        f"""
        SELECT rank::BIGINT AS rank, flops, rate AS flops_per_s, if(isnan(mfu), NULL, mfu) AS utilisation, basis
        FROM staged_flops WHERE basis = '{COUNTED}'
        """,
    )


def _add_operators(run: Run, peak_rate: float | None) -> None:
    found = operator_flops(run, _ALL)
    texts = {name: np.array(column, dtype=object) for name, column in found.texts.items()}
    peak = "NULL" if peak_rate is None else repr(float(peak_rate))
    _insert(
        run,
        {**found.numbers, **texts},
        f"""
        SELECT rank::BIGINT AS rank, type || ' [' || replace(replace(shapes, '"', ''), ';', '] × [') || ']' AS name,
               sum(count * flops) / any_value(steps) AS flops, sum(count * flops) / sum(time) * 1e3 AS flops_per_s,
               sum(count * flops) / sum(time) * 1e3 / {peak} AS utilisation, '{COUNTED}' AS basis
        FROM staged_flops JOIN web.counted_steps USING (rank)
        WHERE time > 0 AND rank NOT IN (SELECT rank FROM web.flops WHERE basis = '{RECORDED}')
        GROUP BY rank, type, shapes
        """,
    )


def _insert(run: Run, columns: dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]], select: str) -> None:
    if not len(columns["rank"]):
        return
    run.connection.register("staged_flops", columns)
    try:
        run.connection.execute(f"INSERT INTO web.flops BY NAME {select}")
    finally:
        run.connection.unregister("staged_flops")
