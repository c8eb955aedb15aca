"""What a run derives from its collectives: groups that no recording declares, one clock, kinds of groups, stages.

In this order, because each builds on the one before:

    1. groups from the numbers in links             run/communicators/group_structure.py     no clock needed
    2. the clocks of all ranks                      run/clock.py               from the collectives of known groups
    3. groups of what is left, by common ends       run/communicators/groups.py              on one clock
       pairs of receives in a pipeline's middle     run/communicators/neighbour_messages.py
    4. kinds of groups without a name               run/communicators/group_kinds.py
    5. stages of pipelines that are not declared    run/communicators/pipeline_stages.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray

from paceline.run.clock import clock_offsets
from paceline.run.communicators.group_kinds import structural_kinds
from paceline.run.communicators.group_structure import structured_groups
from paceline.run.communicators.groups import MOST_SURE, infer_groups
from paceline.run.communicators.neighbour_messages import receives_by_end
from paceline.run.communicators.pipeline_stages import structural_stages
from paceline.run.tables import views

MOST_LISTED = 8
"""Groups of more members are named by their first two and last ranks."""


def derive(connection: duckdb.DuckDBPyConnection, *, one_clock: bool) -> None:
    """Create the tables clock, inferred and members, kinds and stages; `one_clock`: all times are on one clock already."""
    connection.execute(
        "CREATE OR REPLACE TABLE inferred "
        '(name VARCHAR, rank BIGINT, inferred_group VARCHAR, "index" BIGINT, confidence DOUBLE, operator VARCHAR)'
    )
    connection.execute("CREATE SCHEMA IF NOT EXISTS grouped")
    connection.execute(f"CREATE OR REPLACE VIEW grouped.collectives AS {views.GROUPED_COLLECTIVES}")
    structured = structured_groups(connection)
    _add_inferred(
        connection, [(one.name, one.rank, one.block.ranks, one.block.confidence, one.operator) for one in structured]
    )
    _fill_clock(connection, one_clock=one_clock)
    by_end = receives_by_end(connection)
    _add_inferred(connection, [(name, rank, pair, MOST_SURE, name) for name, rank, pair in by_end])
    by_ends = infer_groups(connection)
    _add_inferred(connection, [(one.name, one.rank, one.ranks, one.confidence, one.name) for one in by_ends])
    create_members(connection)
    connection.execute('CREATE OR REPLACE TABLE kinds ("group" VARCHAR, kind VARCHAR)')
    add_rows(connection, "kinds", list(structural_kinds(connection).items()))
    connection.execute("CREATE OR REPLACE TABLE stages (rank BIGINT, stage BIGINT)")
    add_rows(connection, "stages", list(structural_stages(connection).items()))


def _add_inferred(
    connection: duckdb.DuckDBPyConnection, found: Sequence[tuple[str, int, tuple[int, ...], float, str]]
) -> None:
    """Rows of `inferred`; members that were not recorded have no operator."""
    rows: list[tuple[object, ...]] = [
        (name, rank, group_name(ranks), ranks.index(rank), confidence, operator)
        for name, rank, ranks, confidence, operator in found
    ]
    seen = {(rank, ranks) for _, rank, ranks, _, _ in found}
    sure = {ranks: confidence for _, _, ranks, confidence, _ in found}
    rows += [
        (None, rank, group_name(ranks), index, confidence, None)
        for ranks, confidence in sure.items()
        for index, rank in enumerate(ranks)
        if (rank, ranks) not in seen
    ]
    add_rows(connection, "inferred", rows)


def create_members(connection: duckdb.DuckDBPyConnection) -> None:
    """The table members, without the kinds that structure tells."""
    connection.execute(f"CREATE OR REPLACE TABLE members AS {views.MEMBERS}")


def apply_kinds(connection: duckdb.DuckDBPyConnection) -> None:
    """Name the groups of members whose kind structure tells."""
    connection.execute('UPDATE members SET kind = kinds.kind FROM kinds WHERE members."group" = kinds."group"')


def group_name(ranks: Sequence[int]) -> str:
    """
    >>> group_name((0, 2, 4)), group_name(range(0, 64, 2))
    ('inferred:0,2,4', 'inferred:0,2…62')
    """
    if len(ranks) <= MOST_LISTED:
        return "inferred:" + ",".join(map(str, ranks))
    return f"inferred:{ranks[0]},{ranks[1]}…{ranks[-1]}"


def _fill_clock(connection: duckdb.DuckDBPyConnection, *, one_clock: bool) -> None:
    connection.execute("CREATE OR REPLACE TABLE clock (rank BIGINT, clock_offset BIGINT)")
    if one_clock:
        # The times are already aligned; aligning them again would move them by the scatter of the ends.
        connection.execute("INSERT INTO clock SELECT DISTINCT rank, 0 FROM raw.ranks WHERE clock_offset IS NOT NULL")
        return
    connection.execute("SET search_path = 'grouped'")
    try:
        offsets = clock_offsets(connection)
    finally:
        connection.execute("SET search_path = 'main'")
    add_rows(connection, "clock", list(offsets.items()))


def add_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """As columns: DuckDB's executemany takes a millisecond per row."""
    if rows:
        columns: Mapping[str, NDArray[np.generic]] = {
            f"c{i}": np.array(values) for i, values in enumerate(zip(*rows, strict=True))
        }
        connection.register("staged", columns)
        connection.execute(f"INSERT INTO {table} SELECT * FROM staged")
        connection.unregister("staged")
