"""Matching of pipeline messages in an OSDI'25 trace: which computation a message belongs to, and which were never sent.

The study's recorder writes a message for every call that may send one. Inside a step, the messages of a worker of one
kind (forward or backward, send or receive) are assigned to the computations of that pass, in order:

- a receive that starts after the last computation of its pass began, or a send that ends before the first one ended,
  belongs to none: it was recorded at the edge of the step and never launched;
- of the others, the k-th belongs to the k-th computation (if the first receive is missing, to the next one);
- the first chunk of the model receives no activations and the last one sends none, and vice versa for gradients: with
  several chunks per stage (an interleaved pipeline) such messages are recorded, but have no other side;
- the rest are real messages: the k-th of the sending stage is the k-th of the receiving stage.
"""

from __future__ import annotations

MATCHED = """
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
               -- 50 µs: tolerance for clocks and rounding
               coalesce(if(kind = 'recv', start <= last_start + 50_000, start + duration >= first_end - 50_000),
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

`operations`: operation (a unique number), rank, step, optype, gmc (chunk of the model), model_chunks (number of chunks),
start and duration in ns. `matched`: operation, serves (number of the computation), message (number among the real
messages; null = no other side).
"""
