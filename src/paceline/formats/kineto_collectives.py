"""Collectives of a torch trace: the kernels of NCCL and its kin, or, where there are none, what the host recorded.

`bytes` is the payload of the message (the larger of input and output, elements × size of the type; the input where
only that is recorded), because a trace knows nothing of links. Whoever waited cannot be told from one rank's kernel:
transit and wait stay null. The sequence is the recorded one, else the position among the rank's collectives of the
same group and operation.
"""

from __future__ import annotations

from paceline.formats.collective_names import op_of
from paceline.formats.kineto_head import Head
from paceline.formats.reader import Sink

TALKS = """
    cat IN ('kernel', 'Kernel')
    AND (collective IS NOT NULL OR regexp_matches(name, '^(void )?(nccl|rccl|msccl|hcom_|hccl)', 'i'))
"""
"""Whether a span is a kernel that communicates: it says so, or it has the name of a library's kernel."""

_HOST_SPELLINGS = (
    # Best first: what the backend's thread did, what torch handed to it, what was called.
    r"^(gloo|nccl|mpi|ucc|hccl|xccl|rccl):",
    r"^record_param_comms$",
    r"^c10d::",
)

_WIDTHS = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "fp16": 2, "bf16": 2,
    "byte": 1, "uint8": 1, "unsigned char": 1, "char": 1, "int8": 1, "signed char": 1, "bool": 1,
    "short": 2, "int16": 2, "short int": 2, "int": 4, "int32": 4, "long": 8, "int64": 8, "long int": 8,
    "uint16": 2, "uint32": 4, "uint64": 8, "complexfloat": 8, "complexdouble": 16, "complexhalf": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

_COLUMNS = (
    "name, pid, tid, start, duration, collective, elements_in, elements_out, dtype, pg_name, seq, seq_num, src, dst"
)


def stage_talk(sink: Sink) -> None:
    """A table `kineto_talk`: one row per collective, from the best witness the trace has."""
    found = _stage(sink, "kernels", TALKS)
    for spelling in _HOST_SPELLINGS:
        if not found:
            found = _stage(sink, "host", f"regexp_matches(name, '{spelling}')")


def _stage(sink: Sink, witness: str, condition: str) -> int:
    sink.connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE kineto_talk AS
        SELECT {_COLUMNS}, dims, types, '{witness}' AS witness, coalesce(collective, name) AS spelled
        FROM kineto_spans
        WHERE {condition}
        """
    )
    [(found,)] = sink.connection.execute("SELECT count(*) FROM kineto_talk").fetchall()
    return int(found)


_COLLECTIVES = """
    WITH ops AS (
        SELECT unnest(?::VARCHAR[]) AS spelled, unnest(?::VARCHAR[]) AS op
    ), widths AS (
        SELECT unnest(?::VARCHAR[]) AS element, unnest(?::BIGINT[]) AS width
    ), told AS (
        SELECT *, coalesce(nullif(pg_name, ''), ?::VARCHAR) AS "group",
               lower(replace(coalesce(dtype, TRY_CAST(types AS VARCHAR[])[1]), 'c10::', '')) AS element,
               -- Tensors of the call, e.g. [[4096, 1024], [1024]] → 4,195,328 elements.
               list_sum(list_transform(TRY_CAST(dims AS BIGINT[][]), lambda tensor: list_product(tensor)))
                   AS elements_given,
               TRY_CAST(coalesce(seq, seq_num) AS BIGINT) AS recorded
        FROM kineto_talk JOIN ops USING (spelled)
    ), measured AS (
        SELECT *, coalesce(greatest(TRY_CAST(elements_in AS BIGINT), TRY_CAST(elements_out AS BIGINT)), elements_given)
                  AS elements
        FROM told
    ), numbered AS (
        SELECT *, row_number() OVER alike - 1 AS ordinal,
               count(DISTINCT recorded) OVER everything = count(*) OVER everything AS unambiguous
        FROM measured
        WINDOW alike AS (PARTITION BY "group", op ORDER BY start, name), everything AS (PARTITION BY "group", op)
    )
    SELECT step, "group", op, name, CASE WHEN unambiguous THEN recorded ELSE ordinal END AS sequence,
           CASE op WHEN 'send' THEN TRY_CAST(dst AS BIGINT) WHEN 'receive' THEN TRY_CAST(src AS BIGINT) END AS peer,
           numbered.start, duration, TRY_CAST(elements * width AS BIGINT) AS bytes
    FROM numbered
    LEFT JOIN widths USING (element)
    ASOF LEFT JOIN kineto_steps AS steps ON numbered.start >= steps.start
"""


def read_collectives(head: Head, sink: Sink) -> None:
    rows = sink.connection.execute("SELECT DISTINCT spelled, witness FROM kineto_talk").fetchall()
    # On the host "other" is book-keeping (init, wait, coalescing); a kernel of the library always moves data.
    ops = {spelled: op for spelled, witness in rows if (op := op_of(spelled)) != "other" or witness == "kernels"}
    only_group = head.groups[0].pg_name or None if len(head.groups) == 1 else None
    sink.add_query(
        "collectives",
        _COLLECTIVES,
        [list(ops), list(ops.values()), list(_WIDTHS), list(_WIDTHS.values()), only_group],
    )
