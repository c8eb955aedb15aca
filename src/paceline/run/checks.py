"""Checks of a run as a whole: missing ranks, ragged steps, clocks that could not be aligned, and what cannot be true."""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from paceline.core.message import message, ranks_named
from paceline.run.plausibility import TOLERANCE, impossible_rows
from paceline.run.read_warning import ReadWarning


def check_run(connection: duckdb.DuckDBPyConnection, loaded: Collection[str]) -> list[ReadWarning]:
    warnings = _unaligned(connection) + _impossible_bandwidth(connection)
    if "steps" in loaded:
        warnings += _ragged_steps(connection) + _parts_longer_than_the_whole(connection)
    return warnings + impossible_rows(connection, loaded)


def _unaligned(connection: duckdb.DuckDBPyConnection) -> list[ReadWarning]:
    """Ranks with collectives whose clock could not be aligned with the others; ranks of one host share a clock."""
    rows = connection.execute(
        """
        SELECT DISTINCT rank FROM raw.collectives
        WHERE rank NOT IN (SELECT rank FROM clock) AND start IS NOT NULL
          AND (SELECT count(DISTINCT rank) FROM raw.collectives) > 1
          AND (SELECT count(DISTINCT coalesce(host, '')) > 1 OR bool_or(host IS NULL) FROM ranks)
        ORDER BY rank
        """
    ).fetchall()
    if not rows:
        return []
    unaligned = [row[0] for row in rows]
    return [ReadWarning(None, None, message("not_aligned", ranks=ranks_named(unaligned)))]


def _ragged_steps(connection: duckdb.DuckDBPyConnection) -> list[ReadWarning]:
    rows = connection.execute(
        """
        WITH counted AS (SELECT rank, count(*) AS steps, min(step) AS low, max(step) AS high FROM steps GROUP BY rank),
        common AS (SELECT steps, low, high FROM counted GROUP BY ALL ORDER BY count(*) DESC, steps DESC LIMIT 1)
        SELECT counted.rank, counted.steps, counted.low, counted.high, common.steps, common.low, common.high
        FROM counted, common
        WHERE (counted.steps, counted.low, counted.high) IS DISTINCT FROM (common.steps, common.low, common.high)
        ORDER BY counted.rank
        """
    ).fetchall()
    if not rows:
        return []
    _, count, low, high, common, common_low, common_high = rows[0]
    return [
        ReadWarning(
            None,
            None,
            message(
                "ragged",
                ranks=ranks_named([row[0] for row in rows]),
                n=count,
                low=low,
                high=high,
                common=common,
                common_low=common_low,
                common_high=common_high,
            ),
        )
    ]


FASTEST_LINK = {"RDMA": 100.0, "PCIE": 128.0, "HCCS": 400.0, "SIO": 400.0, "SDMA": 400.0}
"""GB/s that no link of this kind reaches; local copies are memory traffic and have no such bound."""


def _impossible_bandwidth(connection: duckdb.DuckDBPyConnection) -> list[ReadWarning]:
    """Transfers faster than any link of their kind: their times or sizes are wrong."""
    rows = connection.execute(
        """
        SELECT transport, count(*), max(bytes / duration), limits.fastest
        FROM raw.transfers JOIN {limits} USING (transport)
        WHERE src <> dst AND duration > 0 AND bytes / duration > limits.fastest
        GROUP BY transport, limits.fastest ORDER BY transport
        """.format(limits=f"(VALUES {_limits()}) AS limits(transport, fastest)")
    ).fetchall()
    return [
        ReadWarning(
            None,
            None,
            message("impossible_links", n=count, transport=transport, most=fastest, limit=float(limit)),
        )
        for transport, count, fastest, limit in rows
    ]


def _limits() -> str:
    return ", ".join(f"('{transport}', {limit!r})" for transport, limit in FASTEST_LINK.items())


def _parts_longer_than_the_whole(connection: duckdb.DuckDBPyConnection) -> list[ReadWarning]:
    """Steps whose parts add up to more than their duration."""
    [(count, most)] = connection.execute(
        """
        SELECT count(*), max((computing + exposed) / duration) FROM raw.steps
        WHERE duration > 0 AND computing + exposed > ? * duration
        """,
        [1 + TOLERANCE],
    ).fetchall()
    if not count:
        return []
    return [ReadWarning(None, None, message("impossible_steps", n=count, percent=100 * most))]
