"""A copy of a run's tables that answers at once: small tables as they are, large ones summed up, metrics worked out.

It lives in a DuckDB file of its own, attached to the run's connection as `web`. Tables keep the names and columns of
docs/tables.md; numbers people see come from paceline.metrics and have names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np

from paceline.diagnosis.hardware import Hardware
from paceline.metrics.communication.collectives import DERIVED
from paceline.metrics.flops import flops_rows
from paceline.metrics.memory import rank_memory
from paceline.metrics.network.links import store_links
from paceline.metrics.operators import OPERATOR_TIMES
from paceline.metrics.rank_performance import RankPerformance, rank_performance
from paceline.metrics.steps import in_steps, step_condition
from paceline.metrics.table import Table
from paceline.run.run import Run

READ = (
    "ranks",
    "groups",
    "steps",
    "collectives",
    "links",
    "packets",
    "kernels",
    "operators",
    "ranks_memory",
    "memory",
    "flops",
    "input_pipeline",
    "input_steps",
    "host_calls",
    "counters",
)
"""Tables read before a run is ready; `events` are read when the timeline is opened."""

MEMORY_LIMIT = "2GB"

_COPIES = {
    "ranks": "SELECT * FROM ranks",
    "groups": "SELECT * FROM groups",
    "steps": "SELECT * FROM steps ORDER BY rank, step",
    "collectives": "SELECT * FROM collectives ORDER BY rank, start",
    "packets": """
        SELECT rank, step, transport, packet_bytes, sum(count)::BIGINT AS count, sum(duration)::BIGINT AS duration
        FROM packets GROUP BY ALL
    """,
    "memory": "SELECT * FROM memory ORDER BY rank, kind, time",
    "input_pipeline": "SELECT * FROM input_pipeline",
    "input_steps": "SELECT * FROM input_steps ORDER BY rank, step",
    "host_calls": "SELECT * FROM host_calls",
    "counters": "SELECT * FROM counters ORDER BY rank, name, time",
}

_WHOLE = frozenset({"rank", "step", "steps", "peer_group", "peak", "capacity", "static", "headroom"})
"""Columns of metrics that hold whole numbers."""


class Snapshot:
    """The copy, asked through a cursor of its own: each request has one, so that it can be interrupted alone."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.cursor.execute("USE web")

    def sql(self, query: str, /, params: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation:
        return self.cursor.sql(query, params=params)


def make_snapshot(run: Run, scratch: Path, hardware: Hardware) -> None:
    """Read what is needed and copy it; `scratch` is a directory of ours."""
    connection = run.connection
    # Before anything is read: once used, the directory cannot be changed.
    connection.execute("SET temp_directory = ?", [str(scratch / "spill")])
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    run.load(READ)
    file = str(scratch / "web.duckdb").replace("'", "''")
    connection.execute(f"ATTACH '{file}' AS web")
    performance = rank_performance(run)
    chosen = step_condition(performance.steps.tolist())
    copies = _COPIES | {"operator_times": OPERATOR_TIMES.format(chosen=chosen)}
    for name, select in copies.items():
        connection.execute(f"CREATE TABLE web.{name} AS {select}")
    store_links(run, chosen, hardware.nominal_speeds, schema="web")
    _derive(connection)
    for name, table in _metrics(run, performance, hardware).items():
        _store(connection, name, table)


def _derive(connection: duckdb.DuckDBPyConnection) -> None:
    """Tables that build on the copies, and on each other."""
    with connection.cursor() as cursor:
        cursor.execute("USE web")
        for name, select in DERIVED.items():
            cursor.execute(f"CREATE TABLE {name} AS {select}")


def _metrics(run: Run, performance: RankPerformance, hardware: Hardware) -> dict[str, Table]:
    ranks = performance.ranks.tolist()
    return {
        "steady_steps": Table({"step": performance.steps.astype(np.float64)}, {}),
        "rank_steps": performance.rank_steps,
        "rank_means": performance.rank_means,
        "rank_peers": performance.rank_peers,
        "rank_memory": rank_memory(run, ranks, performance.peer_groups, hardware.memory_for),
        "flops": flops_rows(run, in_steps(performance.steps.tolist()), hardware.peak_rate),
    }


def _store(connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    """Unknown numbers become null."""
    numbers = [f'if(isnan("{column}"), NULL, "{column}")::{_type(column)} AS "{column}"' for column in table.numbers]
    texts = [f'"{column}"::VARCHAR AS "{column}"' for column in table.texts]
    values = {**table.numbers, **{column: np.array(list(words), dtype=object) for column, words in table.texts.items()}}
    connection.register("staged_metrics", values)
    try:
        connection.execute(f"CREATE TABLE web.{name} AS SELECT {', '.join(numbers + texts)} FROM staged_metrics")
    finally:
        connection.unregister("staged_metrics")


def _type(column: str) -> str:
    return "BIGINT" if column in _WHOLE else "DOUBLE"
