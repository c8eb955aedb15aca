"""Columns for canvases, as bytes: heat maps, matrices, curves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from paceline.analysis import memory, steps
from paceline.analysis.table import Source, Table, query
from paceline.web.columns import Column, encode
from paceline.web.service import BINARY, PROBLEMS, Opened, ask, binary

router = APIRouter(tags=["charts"])

Step = Annotated[int | None, Query(ge=-1, le=2**53, description="One step; all of them when left out.")]
Rank = Annotated[int, Query(ge=0, le=2**31)]
MOST_LINKS = 4_000_000
MOST_POINTS = 4_000


def to_bytes(table: Table, **extra: object) -> bytes:
    """Numbers as f4: seven digits are more than a screen shows."""
    columns: dict[str, Column] = {name: column.astype("<f4") for name, column in table.numbers.items()}
    return encode(columns | dict(table.texts), **extra)


@router.get("/runs/{run_id}/charts/breakdown", responses=PROBLEMS | BINARY, response_class=Response)
async def step_breakdown(request: Request, opened: Opened, step: Step = None) -> Response:
    """Per rank the parts of a step, ms: rank, step, compute, overlapped, exposed, waiting, tail, free, data."""
    chosen = "true" if step is None else f"step = {step}"
    return binary(await ask(request, opened, lambda snapshot: to_bytes(steps.rank_breakdown(snapshot, chosen))))


@router.get("/runs/{run_id}/charts/communication", responses=PROBLEMS | BINARY, response_class=Response)
async def communication_times(request: Request, opened: Opened, step: Step = None) -> Response:
    """Per rank its communication a step, ms: rank, time, wait, transit."""
    chosen = "true" if step is None else f"step = {step}"
    select = f"""
        SELECT rank, sum(duration) / count(DISTINCT coalesce(step, 0)) / 1e6 AS time,
               coalesce(nullif(sum(wait), 0), sum(early)) / count(DISTINCT coalesce(step, 0)) / 1e6 AS wait,
               sum(transit) / count(DISTINCT coalesce(step, 0)) / 1e6 AS transit
        FROM rank_collectives WHERE {chosen} GROUP BY rank ORDER BY rank
    """
    return binary(await ask(request, opened, lambda snapshot: to_bytes(query(snapshot, select))))


@router.get("/runs/{run_id}/charts/links", responses=PROBLEMS | BINARY, response_class=Response)
async def link_matrix(request: Request, opened: Opened, step: Step = None) -> Response:
    """Every link between ranks: src, dst, transport, bytes, time (ms)."""
    return binary(await ask(request, opened, lambda snapshot: _links(snapshot, step)))


def _links(source: Source, step: int | None) -> bytes:
    summed = "link_sums" if step is None else f"links WHERE step = {step}"
    table = query(
        source,
        f"""
        SELECT src, dst, transport, sum(bytes)::DOUBLE AS bytes, sum(duration) / 1e6 AS time
        FROM (FROM {summed}) WHERE src <> dst AND scope = 'global'
        GROUP BY ALL ORDER BY src, dst LIMIT {MOST_LINKS}
        """,
    )
    columns: dict[str, Column] = {
        name: column.astype("<i4" if name in ("src", "dst") else "<f4") for name, column in table.numbers.items()
    }
    return encode(columns | dict(table.texts))


@router.get("/runs/{run_id}/charts/own-time", responses=PROBLEMS | BINARY, response_class=Response)
async def own_times(request: Request, opened: Opened) -> Response:
    """Rank × step: own time, ms (duration - exposed communication)."""
    select = """
        SELECT rank, step, coalesce(duration - exposed, computing, forward_backward) / 1e6 AS own FROM steps
        WHERE step IS NOT NULL ORDER BY rank, step
    """
    return binary(await ask(request, opened, lambda snapshot: to_bytes(query(snapshot, select))))


@router.get("/runs/{run_id}/charts/resources", responses=PROBLEMS | BINARY, response_class=Response)
async def resources(request: Request, opened: Opened) -> Response:
    """Per rank: peak, capacity (bytes), flops, flops_per_s, utilisation, and what they are based on."""
    select = """
        WITH work AS (
            SELECT rank, sum(flops) AS flops, sum(flops_per_s) AS flops_per_s, max(utilisation) AS utilisation,
                   any_value(basis) AS basis
            FROM flops WHERE name IS NULL GROUP BY rank
        )
        SELECT rank, peak, capacity, flops, flops_per_s, utilisation, work.basis
        FROM ranks LEFT JOIN ranks_memory USING (rank) LEFT JOIN work USING (rank) ORDER BY rank
    """
    return binary(await ask(request, opened, lambda snapshot: to_bytes(query(snapshot, select))))


@router.get("/runs/{run_id}/charts/memory", responses=PROBLEMS | BINARY, response_class=Response)
async def memory_curve(request: Request, opened: Opened, rank: Rank) -> Response:
    """A rank's memory: by time (s since its first sample) or by node of the graph; the peak of every point is kept."""
    return binary(await ask(request, opened, lambda snapshot: to_bytes(memory.memory_curve(snapshot, rank))))


@router.get("/runs/{run_id}/charts/counters", responses=PROBLEMS | BINARY, response_class=Response)
async def counters(request: Request, opened: Opened, rank: Rank) -> Response:
    """A rank's hardware counters over time (s since its first sample)."""
    select = f"""
        WITH placed AS (
            SELECT name, series, (time - min(time) OVER ()) / 1e9 AS x, value,
                   floor((time - min(time) OVER ()) / nullif(max(time) OVER () - min(time) OVER (), 0) * {MOST_POINTS}) AS pixel
            FROM counters WHERE rank = {rank}
        )
        SELECT name || coalesce(' ' || placed.series, '') AS series, min(x) AS x, avg(value) AS value
        FROM placed GROUP BY name, placed.series, pixel ORDER BY 1, 2
    """
    return binary(await ask(request, opened, lambda snapshot: to_bytes(query(snapshot, select))))


@router.get("/runs/{run_id}/charts/input", responses=PROBLEMS | BINARY, response_class=Response)
async def input_queue(request: Request, opened: Opened, rank: Rank) -> Response:
    """A rank's input queues batch by batch: batches waiting, and ms to get and to push one."""
    select = f"""
        SELECT queue, step, size, capacity, get_time / 1e6 AS get_time, push_time / 1e6 AS push_time
        FROM input_steps WHERE rank = {rank} ORDER BY queue, step LIMIT 100000
    """
    return binary(await ask(request, opened, lambda snapshot: to_bytes(query(snapshot, select))))
