"""What is odd about a run as a whole: missing ranks, ragged steps, clocks that could not be aligned."""

from __future__ import annotations

import duckdb

from paceline.run.batch import Warning

_MOST_NAMED = 8


def check_run(connection: duckdb.DuckDBPyConnection, *, steps: bool) -> list[Warning]:
    warnings = _missing_ranks(connection) + _unaligned(connection)
    return warnings + (_ragged_steps(connection) if steps else [])


def _missing_ranks(connection: duckdb.DuckDBPyConnection) -> list[Warning]:
    missing = [
        row[0] for row in connection.execute("SELECT rank FROM ranks WHERE format IS NULL ORDER BY 1").fetchall()
    ]
    if not missing:
        return []
    return [Warning(None, None, f"{_some(missing)} took part but left no recording here")]


def _unaligned(connection: duckdb.DuckDBPyConnection) -> list[Warning]:
    """Ranks whose clock could not be tied to the others, although they recorded collectives; one host has one clock."""
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
    alone = [row[0] for row in rows]
    return [
        Warning(
            None,
            None,
            f"{_some(alone)}: no collectives that end together with another rank's, so clocks are not aligned",
        )
    ]


def _ragged_steps(connection: duckdb.DuckDBPyConnection) -> list[Warning]:
    rows = connection.execute(
        """
        WITH counted AS (SELECT rank, count(*) AS steps, min(step) AS low, max(step) AS high FROM steps GROUP BY rank),
        usual AS (SELECT steps, low, high FROM counted GROUP BY ALL ORDER BY count(*) DESC, steps DESC LIMIT 1)
        SELECT counted.rank, counted.steps, counted.low, counted.high, usual.steps, usual.low, usual.high
        FROM counted, usual
        WHERE (counted.steps, counted.low, counted.high) IS DISTINCT FROM (usual.steps, usual.low, usual.high)
        ORDER BY counted.rank
        """
    ).fetchall()
    if not rows:
        return []
    _, count, low, high, usual, usual_low, usual_high = rows[0]
    return [
        Warning(None, None, f"steps are ragged: {_some([row[0] for row in rows])} recorded {count} steps ({low}–{high}), "
                f"the others {usual} ({usual_low}–{usual_high}); compared where both exist")
    ]  # fmt: skip


def _some(ranks: list[int]) -> str:
    """rank 3, or ranks 3, 4, 5 … (12 in all)."""
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" … ({len(ranks)} in all)" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
