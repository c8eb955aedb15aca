"""Collectives of a torch trace: kernels of NCCL, RCCL or HCCL; in a trace without any, what the host recorded.

`bytes` is the payload of the message (the larger of input and output, elements × size of the type; the input if only
that is recorded), because a trace has no links. The kernel of one rank does not show who waited: transit and wait are
null. The sequence is the recorded one, otherwise the position among the rank's collectives of the same group and
operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.collective_names import op_of
from paceline.formats.base import Sink
from paceline.formats.kineto.metadata import TraceHead

IS_COMMUNICATION = """
    cat IN ('kernel', 'Kernel')
    AND (collective IS NOT NULL OR regexp_matches(name, '^(void )?(nccl|rccl|msccl|hcom_|hccl)', 'i'))
"""
"""Condition for spans that are communication kernels: by their arguments, or by the name of a library's kernel."""

_HOST_SPELLINGS = (
    # Best first: work of the backend's thread, what torch passed to it, the call itself.
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


def stage_communication(sink: Sink) -> None:
    """Create the table `kineto_communication`: one row per collective, from the best source that the trace has."""
    found = _stage(sink, "kernels", IS_COMMUNICATION)
    for spelling in _HOST_SPELLINGS:
        if not found:
            found = _stage(sink, "host", "regexp_matches(name, ?)", [spelling])


def _stage(sink: Sink, source: str, condition: str, parameters: Sequence[str] = ()) -> int:
    sink.connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE kineto_communication AS
        SELECT {_COLUMNS}, dims, types, ? AS source, coalesce(collective, name) AS spelled
        FROM kineto_spans
        WHERE {condition}
        """,
        [source, *parameters],
    )
    [(found,)] = sink.connection.execute("SELECT count(*) FROM kineto_communication").fetchall()
    return int(found)


_COLLECTIVES = """
    WITH ops AS (
        SELECT unnest(?::VARCHAR[]) AS spelled, unnest(?::VARCHAR[]) AS op
    ), widths AS (
        SELECT unnest(?::VARCHAR[]) AS element, unnest(?::BIGINT[]) AS width
    ), named AS (
        SELECT *, coalesce(nullif(pg_name, ''), ?::VARCHAR) AS "group",
               lower(replace(coalesce(dtype, TRY_CAST(types AS VARCHAR[])[1]), 'c10::', '')) AS element,
               -- Tensors of the call: [[4096, 1024], [1024]] → 4,195,328 elements.
               list_sum(list_transform(TRY_CAST(dims AS BIGINT[][]), lambda tensor: list_product(tensor)))
                   AS elements_given,
               TRY_CAST(coalesce(seq, seq_num) AS BIGINT) AS recorded
        FROM kineto_communication JOIN ops USING (spelled)
    ), measured AS (
        SELECT *, coalesce(greatest(TRY_CAST(elements_in AS BIGINT), TRY_CAST(elements_out AS BIGINT)), elements_given)
                  AS elements
        FROM named
    ), numbered AS (
        SELECT *, row_number() OVER in_order - 1 AS ordinal,
               count(DISTINCT recorded) OVER all_of_op = count(*) OVER all_of_op AS unambiguous
        FROM measured
        WINDOW in_order AS (PARTITION BY "group", op ORDER BY start, name), all_of_op AS (PARTITION BY "group", op)
    )
    SELECT step, "group", op, name, CASE WHEN unambiguous THEN recorded ELSE ordinal END AS sequence,
           CASE op WHEN 'send' THEN TRY_CAST(dst AS BIGINT) WHEN 'receive' THEN TRY_CAST(src AS BIGINT) END AS peer,
           numbered.start, duration, TRY_CAST(elements * width AS BIGINT) AS bytes
    FROM numbered
    LEFT JOIN widths USING (element)
    ASOF LEFT JOIN kineto_steps AS steps ON numbered.start >= steps.start
"""


def read_collectives(head: TraceHead, sink: Sink) -> None:
    rows = sink.connection.execute("SELECT DISTINCT spelled, source FROM kineto_communication").fetchall()
    # On the host, "other" is administration (init, wait, coalescing); a kernel of the library always moves data.
    ops = {spelled: op for spelled, source in rows if (op := op_of(spelled)) != "other" or source == "kernels"}
    only_group = head.groups[0].pg_name or None if len(head.groups) == 1 else None
    sink.add_query(
        "collectives",
        _COLLECTIVES,
        [list(ops), list(ops.values()), list(_WIDTHS), list(_WIDTHS.values()), only_group],
    )
