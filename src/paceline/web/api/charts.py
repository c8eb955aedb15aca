"""Endpoints of charts: columns of numbers as bytes, for heat maps, matrices and curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from paceline.metrics import memory
from paceline.metrics.communication.collectives import rank_communication
from paceline.metrics.flops import FLOPS_BY_RANK
from paceline.metrics.network.links import host_links
from paceline.metrics.steps import PARTS
from paceline.metrics.table import Source, Table, as_table, query
from paceline.web.api.tables import Ranks, parse_ranks
from paceline.web.binary_columns import BinaryColumn, encode
from paceline.web.service import BINARY, PROBLEMS, RunDependency, binary, query_run
from paceline.web.snapshot import Snapshot
from paceline.web.tables import WHO, Per, chosen_steps, links_in_step

router = APIRouter(tags=["charts"])

Step = Annotated[int | None, Query(ge=-1, le=2**53, description="One step; all of them when left out.")]
Text = Annotated[str | None, Query(max_length=300)]
Rank = Annotated[int, Query(ge=0, le=2**31)]
MOST_LINKS = 4_000_000
MOST_POINTS = 4_000


def to_bytes(table: Table, about: Mapping[str, object] | None = None) -> bytes:
    """Numbers as f4: seven digits are more than a screen shows; `about` goes into the header."""
    columns: dict[str, BinaryColumn] = {
        name: column.astype("<i4" if name in ("src", "dst") else "<f4") for name, column in table.numbers.items()
    }
    return encode(columns | dict(table.texts), **(about or {}))


@router.get("/runs/{run_id}/charts/breakdown", responses=PROBLEMS | BINARY, response_class=Response)
async def step_breakdown(
    request: Request,
    run: RunDependency,
    step: Step = None,
    host: Text = None,
    stage: Step = None,
    group: Text = None,
    rank: Ranks = None,
) -> Response:
    """Per rank the parts of a step (they add up to duration), self_time, reference, ms; excess as a fraction.

    `mean` in the header: duration and parts, the mean over these ranks.
    """
    chosen: dict[str, int | str | list[int] | None] = {
        "host": host or None,
        "stage": stage,
        "group": group or None,
        "rank": parse_ranks(rank),
    }
    return binary(await query_run(request, run, lambda snapshot: to_bytes(*breakdown_rows(snapshot, step, chosen))))


def breakdown_rows(
    snapshot: Snapshot, step: int | None, chosen: Mapping[str, int | str | list[int] | None]
) -> tuple[Table, dict[str, object]]:
    """Ranks of a host, stage or group (null = any), and what else the chart shows."""
    rows = "rank_means" if step is None else "(SELECT * FROM rank_steps WHERE step = $step)"
    select = f"SELECT one.* FROM {rows} AS one JOIN ranks USING (rank) WHERE {WHO}"
    values = {"rank": None, **chosen} | ({} if step is None else {"step": step})
    found = snapshot.cursor.execute(f"{select} ORDER BY rank", values).fetchnumpy()
    names = ("duration", *PARTS)
    means = snapshot.cursor.execute(
        f"SELECT {', '.join(f'avg({name})' for name in names)} FROM ({select})", values
    ).fetchall()[0]
    return as_table(found), {"mean": dict(zip(names, means, strict=True))}


@router.get("/runs/{run_id}/charts/communication", responses=PROBLEMS | BINARY, response_class=Response)
async def communication_times(request: Request, run: RunDependency, step: Step = None) -> Response:
    """Per rank its communication per step: rank, time, waiting, transit (ms), waiting_share, bytes."""
    return binary(await query_run(request, run, lambda snapshot: to_bytes(communication_rows(snapshot, step))))


def communication_rows(source: Source, step: int | None) -> Table:
    means = rank_communication(chosen_steps(step), otherwise="true" if step is None else "false")
    return query(source, f"SELECT rank, time, waiting, transit, waiting_share, bytes FROM ({means}) ORDER BY rank")


@router.get("/runs/{run_id}/charts/links", responses=PROBLEMS | BINARY, response_class=Response)
async def link_matrix(
    request: Request, run: RunDependency, step: Step = None, by: Literal["rank", "host"] = "rank", per: Per = "step"
) -> Response:
    """Every link between ranks, or pair of hosts: src, dst, transport, bytes, time (ms), bandwidth, utilisation, ratio, busy.

    bytes and time are per step, or in total.
    """
    read = link_rows if by == "rank" else host_link_rows
    return binary(await query_run(request, run, lambda snapshot: to_bytes(read(snapshot, step, per))))


def host_link_rows(source: Source, step: int | None, per: Per) -> Table:
    return query(source, f"SELECT * FROM ({host_links(links_in_step(step, per))}) ORDER BY src, dst")


def link_rows(source: Source, step: int | None, per: Per) -> Table:
    return query(
        source,
        f"""
        SELECT src, dst, transport, bytes::DOUBLE AS bytes, duration / 1e6 AS time, bandwidth, utilisation, ratio, busy
        FROM {links_in_step(step, per)} WHERE src <> dst AND scope = 'global' ORDER BY src, dst LIMIT {MOST_LINKS}
        """,
    )


@router.get("/runs/{run_id}/charts/self-time", responses=PROBLEMS | BINARY, response_class=Response)
async def self_times(request: Request, run: RunDependency) -> Response:
    """Rank × step: self_time and reference, ms, and excess as a fraction."""
    return binary(await query_run(request, run, lambda snapshot: to_bytes(self_time_rows(snapshot))))


def self_time_rows(source: Source) -> Table:
    select = "SELECT rank, step, self_time, reference, excess FROM rank_steps WHERE step IS NOT NULL"
    return query(source, f"{select} ORDER BY rank, step")


@router.get("/runs/{run_id}/charts/resources", responses=PROBLEMS | BINARY, response_class=Response)
async def resources(request: Request, run: RunDependency) -> Response:
    """Per rank: peak, capacity (bytes), share of the memory, flops, flops_per_s, utilisation, and what they are based on."""
    select = f"""
        WITH work AS ({FLOPS_BY_RANK})
        SELECT rank, peak, capacity, share, flops, flops_per_s, utilisation, work.basis
        FROM ranks LEFT JOIN rank_memory USING (rank) LEFT JOIN work USING (rank) ORDER BY rank
    """
    return binary(await query_run(request, run, lambda snapshot: to_bytes(query(snapshot, select))))


@router.get("/runs/{run_id}/charts/memory", responses=PROBLEMS | BINARY, response_class=Response)
async def memory_curve(request: Request, run: RunDependency, rank: Rank) -> Response:
    """A rank's memory: by time (s since its first sample) or by node of the graph; the peak of every point is kept."""
    return binary(await query_run(request, run, lambda snapshot: to_bytes(memory.memory_curve(snapshot, rank))))


@router.get("/runs/{run_id}/charts/counters", responses=PROBLEMS | BINARY, response_class=Response)
async def counters(request: Request, run: RunDependency, rank: Rank) -> Response:
    """A rank's hardware counters over time (s since its first sample)."""
    select = f"""
        WITH placed AS (
            SELECT name, series, (time - min(time) OVER ()) / 1e9 AS x, value,
                   floor((time - min(time) OVER ()) / nullif(max(time) OVER () - min(time) OVER (), 0) * {MOST_POINTS}) AS pixel
            FROM counters WHERE rank = $rank
        )
        SELECT name || coalesce(' ' || placed.series, '') AS series, min(x) AS x, avg(value) AS value
        FROM placed GROUP BY name, placed.series, pixel ORDER BY 1, 2
    """
    return binary(await query_run(request, run, lambda snapshot: to_bytes(query(snapshot, select, rank=rank))))


@router.get("/runs/{run_id}/charts/input", responses=PROBLEMS | BINARY, response_class=Response)
async def input_queue(request: Request, run: RunDependency, rank: Rank) -> Response:
    """A rank's input queues batch by batch: batches waiting, and ms to get and to push one."""
    select = """
        SELECT queue, step, size, capacity, get_time / 1e6 AS get_time, push_time / 1e6 AS push_time
        FROM input_steps WHERE rank = $rank ORDER BY queue, step LIMIT 100000
    """
    return binary(await query_run(request, run, lambda snapshot: to_bytes(query(snapshot, select, rank=rank))))
