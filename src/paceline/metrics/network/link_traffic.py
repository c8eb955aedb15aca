"""What every link moved, by kind of message: the observations that link_model.py compares with an expectation.

A *kind* is traffic that should cost the same on every link of a transport: the same operator, in groups of the same size,
with messages of the same size (powers of √2). The size of a message is that of the packets that the recording counts for
the operator in that group; where it counts none, kinds are told apart by the bytes of one collective.

    cost(l, k)      = median over executions of ns / byte
    scatter(l, k)   = (3rd - 1st quartile over executions) / 1.349 / cost
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.table import Source

FEW_BYTES = 1_000_000
"""Traffic below this says nothing about bandwidth."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Names = NDArray[np.object_]

LINK_COUNTS = "src <> dst AND transport <> 'LOCAL' AND scope = 'global' AND duration > 0"
"""SQL on `transfers`: rows that tell how fast one rank sent to another."""

_OP = "regexp_extract(replace(lower(coalesce(name, '')), 'hcom_', ''), '^[a-z]+')"

_TRAFFIC = """
    WITH sizes AS (SELECT "group", count(*) AS size FROM groups GROUP BY "group"),
    messages AS (
        SELECT rank, "group", transport, {packet_key} AS key, sum(packet_bytes * count) / sum(count) AS message
        FROM packets WHERE {chosen} AND packet_bytes > 0 AND count > 0 GROUP BY ALL
    ),
    moved AS (
        SELECT src, dst, transport, "group", name, {op} AS op, coalesce(size, 0) AS size, bytes, duration, message
        FROM (SELECT *, {transfer_key} AS key FROM transfers)
        LEFT JOIN sizes USING ("group") LEFT JOIN messages USING (rank, "group", transport, key)
        WHERE {counts} AND bytes > 0 AND {chosen}
    ),
    kinds AS (
        SELECT *, round(2 * log2(greatest(1, coalesce(message, bytes))))::INT AS octave, message IS NULL AS by_bytes
        FROM moved
    )
    SELECT src, dst, transport, op, size, octave, by_bytes, sum(bytes)::DOUBLE AS bytes, sum(duration)::DOUBLE AS time,
           coalesce(sum(bytes) / nullif(sum(bytes / message), 0), -1)::DOUBLE AS message,
           sum(bytes)::DOUBLE / count(*) AS execution, count(*)::DOUBLE AS executions,
           quantile_cont(duration / bytes, [0.25, 0.5, 0.75]) AS costs
    FROM kinds GROUP BY src, dst, transport, op, size, octave, by_bytes HAVING sum(bytes) >= {few}
    ORDER BY transport, op, size, octave, by_bytes, src, dst
"""


@dataclass(frozen=True)
class LinkTraffic:
    """One row per directed link and kind of message. Times in ns, sizes in bytes."""

    src: Ints
    dst: Ints
    transport: Names
    op: Names
    """Letters of the operator: allreduce, send …"""
    size: Ints
    """Ranks of the groups; 0 = unknown."""
    kind: Ints
    """Number of the kind."""
    bytes: Floats
    time: Floats
    message: Floats
    """Mean size of a message; nan = not recorded."""
    execution: Floats
    """Bytes of one execution of the operator, or of all of a step where only sums were recorded."""
    executions: Floats
    cost: Floats
    scatter: Floats

    @property
    def length(self) -> int:
        return len(self.src)

    @cached_property
    def kinds(self) -> int:
        return int(self.kind.max()) + 1 if self.length else 0


def has_links(run: Source) -> bool:
    """Whether the recording tells which rank sent to which."""
    return bool(run.sql(f"SELECT 1 FROM transfers WHERE {LINK_COUNTS} LIMIT 1").fetchall())


def link_traffic(run: Source, chosen: str) -> LinkTraffic:
    """Every link of a run in the steps chosen (SQL on `step`)."""
    sums = run.sql("SELECT 1 FROM transfers WHERE name LIKE '%-total' LIMIT 1").fetchall()
    key = _OP if sums else "name"
    select = _TRAFFIC.format(packet_key=key, transfer_key=key, op=_OP, counts=LINK_COUNTS, chosen=chosen, few=FEW_BYTES)
    columns = run.sql(
        f"SELECT * EXCLUDE (costs), costs[1] AS low, costs[2] AS middle, costs[3] AS high FROM ({select})"
    )
    rows = columns.fetchnumpy()
    names = [rows[name].astype(str) for name in ("transport", "op")]
    numbers = [rows[name].astype(np.int64) for name in ("size", "octave", "by_bytes")]
    floats = {name: np.asarray(rows[name], dtype=np.float64) for name in ("bytes", "time", "message", "execution")}
    floats["message"][floats["message"] < 0] = np.nan
    low, middle, high = (np.asarray(rows[name], dtype=np.float64) for name in ("low", "middle", "high"))
    return LinkTraffic(
        src=rows["src"].astype(np.int64),
        dst=rows["dst"].astype(np.int64),
        transport=rows["transport"].astype(object),
        op=rows["op"].astype(object),
        size=numbers[0],
        kind=_numbered([*names, *numbers]),
        executions=np.asarray(rows["executions"], dtype=np.float64),
        cost=middle,
        scatter=(high - low) / 1.349 / middle,
        **floats,
    )


def _numbered(columns: list[NDArray[np.generic]]) -> Ints:
    """A number for each combination of values."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        codes = np.unique(codes * (len(values) + 1) + code, return_inverse=True)[1].astype(np.int64)
    return codes


def group_traffic(
    run: Source, chosen: str, links: Sequence[tuple[int, int]]
) -> list[tuple[str, str, int, int, str, float]]:
    """(group, operator, src, dst, transport, ns in the steps chosen) of all links of the groups that use one of these."""
    named = ", ".join(f"({int(src)}, {int(dst)})" for src, dst in links)
    rows = run.sql(
        f"""
        WITH wanted AS (SELECT col0 AS src, col1 AS dst FROM (VALUES {named})),
        used AS (SELECT DISTINCT "group" FROM transfers JOIN wanted USING (src, dst) WHERE {LINK_COUNTS} AND {chosen})
        SELECT coalesce("group", ''), {_OP} AS op, src, dst, transport, sum(duration)::DOUBLE FROM transfers
        WHERE "group" IN (SELECT "group" FROM used) AND {LINK_COUNTS} AND {chosen} GROUP BY ALL ORDER BY ALL
        """
    )
    return [(str(row[0]), str(row[1]), *row[2:]) for row in rows.fetchall()]
