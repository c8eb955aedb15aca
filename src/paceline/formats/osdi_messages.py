"""Which message of an OSDI'25 trace belongs to which computing, and which were never sent.

The study's recorder writes messages by the calls that may send them. Inside a step, a worker's messages of one kind
(forward or backward, send or receive) are told apart by the computing of that pass they serve, in order:

- a receive that starts after the last computing of its pass began, or a send that ends before the first one ended, serves
  none: it was recorded at the edge of the step and never launched;
- of the others, the k-th serves the k-th computing (where the first receive is missing, the next one);
- the first chunk of the model receives no activations and the last one sends none, and the other way round for
  gradients: with several chunks a stage (an interleaved pipeline) such messages are recorded, but have no other side;
- what is left is a real message: the k-th from a stage is the k-th at the stage it goes to.
"""

from __future__ import annotations

MARGIN_NS = 50_000
"""Clocks and rounding: two moments this close are one."""

MATCHED = f"""
    passes AS (
        SELECT rank, step, split_part(optype, '-', 1) AS pass, gmc,
               row_number() OVER (PARTITION BY rank, step, optype ORDER BY start) - 1 AS serves
        FROM operations WHERE optype IN ('forward-compute', 'backward-compute')
    ),
    limits AS (
        SELECT rank, step, split_part(optype, '-', 1) AS pass, max(start) AS last_start,
               min(start + duration) AS first_end, count(*) AS computing
        FROM operations WHERE optype IN ('forward-compute', 'backward-compute') GROUP BY rank, step, pass
    ),
    messages AS (
        SELECT operation, operations.rank, operations.step, optype, start, split_part(optype, '-', 1) AS pass,
               split_part(optype, '-', 2) AS kind, computing,
               coalesce(if(kind = 'recv', start <= last_start + {MARGIN_NS}, start + duration >= first_end - {MARGIN_NS}),
                        true) AS launched, model_chunks
        FROM operations LEFT JOIN limits ON limits.rank = operations.rank AND limits.step = operations.step
             AND limits.pass = split_part(optype, '-', 1)
        WHERE optype IN ('forward-send', 'forward-recv', 'backward-send', 'backward-recv')
    ),
    served AS (
        SELECT *, row_number() OVER same - 1 + if(kind = 'recv' AND count(*) OVER whole + 1 = computing, 1, 0) AS serves
        FROM messages WHERE launched
        WINDOW same AS (PARTITION BY rank, step, optype ORDER BY start), whole AS (PARTITION BY rank, step, optype)
    ),
    placed AS (
        SELECT served.*, CASE WHEN pass = 'forward' AND kind = 'send' OR pass = 'backward' AND kind = 'recv'
                              THEN coalesce(gmc + 1 < model_chunks, true) ELSE coalesce(gmc > 0, true) END AS real
        FROM served LEFT JOIN passes USING (rank, step, pass, serves)
    ),
    matched AS (
        SELECT operation, serves, if(real, row_number() OVER (PARTITION BY rank, step, optype, real ORDER BY start) - 1, NULL)
               AS message
        FROM placed
    )
"""
"""CTEs from `operations` to `matched`.

`operations`: operation (a unique number), rank, step, optype, gmc (which chunk of the model), model_chunks (how many it has
in all), start and duration in ns. `matched`: operation, serves (the number of the computing), message (its number among the
real ones; null = no other side).
"""
