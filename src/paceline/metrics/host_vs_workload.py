"""Slow host or more work: how long a host takes for the same kernels as others, and whether it runs the same program.

Kernels are alike when type and input shapes are; where no shapes were recorded, when their names are. With d(k) the median
duration of kind k and n(k) its executions per step and rank, here and on the other hosts (there: their fast half's median),

    time_ratio = median over the kinds that both run, weighted by time, of d_here(k) / d_there(k)
    work_ratio = sum over k of n_here(k) d(k) / sum over k of n_there(k) d(k),   d(k) = d_there(k), or d_here(k) if only here

A stage with more layers runs more kernels of each kind, and no kernel longer: work_ratio > 1, time_ratio = 1. A stage with
other layers (an output layer) runs kinds of its own. A slow card runs as many kernels, each longer: work_ratio = 1,
time_ratio > 1. Without shapes (or with one shape for everything, which says nothing), longer kernels may also be larger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.table import Source


@dataclass(frozen=True)
class KernelSpeed:
    """See the head of the file."""

    time_ratio: float
    work_ratio: float
    same_shapes: bool
    """Whether kernels are known to be of the same size."""


@dataclass(frozen=True)
class _Kind:
    """Kernels of one kind on some ranks."""

    duration: float
    often: float
    """Executions per step, on ranks that run it."""
    mean: float
    """The same over all of the ranks."""


def compare_kernel_speed(run: Source, here: Iterable[int], there: Iterable[int]) -> KernelSpeed | None:
    """These ranks compared with those; None where no kernel of both is known."""
    here_kinds, there_kinds = _kinds(run, here), _kinds(run, there, fast=True)
    shared = here_kinds.keys() & there_kinds.keys()
    sized = {kind for kind in shared if kind[1]} if len({shapes for _, shapes in shared}) > 1 else set()
    shared = sized or shared
    if not shared:
        return None
    ratios = np.array([here_kinds[kind].duration / there_kinds[kind].duration for kind in shared])
    time = np.array([here_kinds[kind].duration * here_kinds[kind].often for kind in shared])
    known = {**here_kinds, **there_kinds}
    work = [
        sum(kind.mean * known[name].duration for name, kind in kinds.items()) for kinds in (here_kinds, there_kinds)
    ]
    return KernelSpeed(_weighted_median(ratios, time), work[0] / work[1], bool(sized))


def work_differs(run: Source, groups: Iterable[Iterable[int]], chosen: str) -> bool | None:
    """Whether peers run other kernels, or kernels of other sizes, in at least half of the steps; None where sizes are unknown.

    Ranks that run the same kernels on the same shapes have the same work, however long it takes them.
    """
    asked = different = 0
    for ranks in groups:
        rows = run.sql(
            f"""
            WITH
            sized AS (
                SELECT rank, step, type, input_shapes, count(*) AS count FROM kernels
                WHERE rank IN ({", ".join(map(str, ranks)) or "NULL"}) AND {chosen} AND type IS NOT NULL
                      AND input_shapes IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION'
                GROUP BY ALL
            ),
            programs AS (
                SELECT rank, step, hash(list((type, input_shapes, count) ORDER BY type, input_shapes)) AS program,
                       count(DISTINCT input_shapes) AS shapes
                FROM sized GROUP BY rank, step
            )
            SELECT count(DISTINCT program) FROM programs GROUP BY step HAVING count(*) > 1 AND max(shapes) > 1
            """
        ).fetchall()
        asked += len(rows)
        different += sum(programs > 1 for (programs,) in rows)
    return 2 * different >= asked if asked else None


def _kinds(run: Source, ranks: Iterable[int], *, fast: bool = False) -> dict[tuple[str, str], _Kind]:
    """Duration and executions per step of each kind: the median over these ranks, or over the fast half."""
    rows = run.sql(
        f"""
        WITH
        chosen AS (
            SELECT rank, step, if(input_shapes IS NULL AND core = 'GPU', name, type) AS kind,
                   coalesce(input_shapes, '') AS shapes, duration
            FROM kernels
            WHERE rank IN ({", ".join(map(str, ranks)) or "NULL"}) AND type IS NOT NULL AND duration > 0
                  AND core IS DISTINCT FROM 'COMMUNICATION'
        ),
        steps AS (SELECT rank, greatest(1, count(DISTINCT step)) AS steps FROM chosen GROUP BY rank)
        SELECT rank, kind, shapes, median(duration), count(*) / any_value(steps)
        FROM chosen JOIN steps USING (rank) GROUP BY rank, kind, shapes
        """
    ).fetchall()
    each: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _, kind, shapes, duration, often in rows:
        each[kind, shapes].append((float(duration), float(often)))
    count = len({row[0] for row in rows})
    return {kind: _typical(values, count, fast) for kind, values in each.items()}


def _typical(values: list[tuple[float, float]], ranks: int, fast: bool) -> _Kind:
    durations = sorted(duration for duration, _ in values)
    chosen = durations[: (len(durations) + 1) // 2] if fast else durations
    often = [often for _, often in values]
    return _Kind(float(np.median(chosen)), float(np.median(often)), sum(often) / ranks)


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])
