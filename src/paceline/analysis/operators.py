"""The same operator on different ranks: who needs longer for it."""

from __future__ import annotations

from paceline.analysis.table import Source, Table, query


def operator_statistics(run: Source, chosen: str, *, most: int = 200) -> Table:
    """Per operator type and input shapes, over ranks: executions, mean times in ms, the slowest rank and what it costs.

        mean(r) = sum(duration) / executions on rank r
        median  = median over ranks of mean(r)
        ratio   = mean of the slowest rank / median
        excess  = (mean of the slowest - median) · its executions a step      [ms a step]

    The most expensive first. Where only sums over the whole recording exist (table `operators`), these are compared and a
    step is the whole recording.
    """
    kernels = f"""
        SELECT rank, type AS name, coalesce(input_shapes, '') AS shapes, count(*) AS count, sum(duration) AS time,
               count(DISTINCT step) AS steps
        FROM kernels WHERE {chosen} AND type IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION'
        GROUP BY ALL
    """
    sums = """
        SELECT rank, name, '' AS shapes, sum(count) AS count, sum(time) AS time, 1 AS steps FROM operators
        WHERE level = 'type' AND core IS DISTINCT FROM 'COMMUNICATION' GROUP BY rank, name
    """
    recorded = run.sql("SELECT 1 FROM kernels WHERE type IS NOT NULL LIMIT 1").fetchall()
    return query(
        run,
        f"""
        WITH
        each AS (
            SELECT *, time / count AS mean, count / greatest(steps, 1) AS per_step FROM ({kernels if recorded else sums})
            WHERE count > 0
        ),
        compared AS (
            SELECT name, shapes, count(*) AS ranks, sum(count)::BIGINT AS count, sum(time) / 1e6 AS time,
                   median(mean) / 1e6 AS median, max(mean) / 1e6 AS slowest, arg_max(rank, mean) AS slowest_rank,
                   arg_max(per_step, mean) AS per_step
            FROM each GROUP BY name, shapes
        )
        SELECT name, shapes, ranks, count, time, median, slowest, slowest_rank, slowest / nullif(median, 0) AS ratio,
               (slowest - median) * per_step AS excess
        FROM compared ORDER BY excess DESC, time DESC, name, shapes LIMIT {most:d}
        """,
    )
