"""Collectives of a torch trace: kernels that communicate; in a trace without any, what the host recorded.

A kernel communicates if its name says so (communication_kernels.py) or if it was launched inside the annotation of a
collective, which then tells operation, group and payload too: NCCL's all-to-all runs as "SendRecv".

`bytes` is the payload of the message (the larger of input and output, elements × size of the type; the input if only
that is recorded), because a trace has no links. The kernel of one rank does not show who waited: transit and wait are
null. The sequence is the recorded one, otherwise the position among the rank's collectives of the same group and
operation.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core.collective_names import op_of
from paceline.formats.base import Sink
from paceline.formats.kineto.groups import group_ids
from paceline.formats.kineto.metadata import TraceHead

_WIDTHS = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "fp16": 2, "bf16": 2,
    "byte": 1, "uint8": 1, "unsigned char": 1, "char": 1, "int8": 1, "signed char": 1, "bool": 1,
    "short": 2, "int16": 2, "short int": 2, "int": 4, "int32": 4, "long": 8, "int64": 8, "long int": 8,
    "uint16": 2, "uint32": 4, "uint64": 8, "complexfloat": 8, "complexdouble": 16, "complexhalf": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

CALL_COLUMNS = "collective, elements_in, elements_out, dtype, pg_name, seq, seq_num, src, dst, dims, types"
"""What torch tells about a collective."""


def stage_communication(sink: Sink) -> None:
    """Create the table `kineto_communication`: one row per collective, from the best source that the trace has."""
    if not _stage(sink, "kernels", _KERNELS):
        _stage(sink, "host", _HOST)


_FROM_CALL = ", ".join(
    # What the kernel says, else torch's record of the parameters, else the annotation around the launch.
    f"coalesce(device.{column}, params.{column}, annotation.{column}) AS {column}"
    for column in CALL_COLUMNS.split(", ")
    if column not in ("dims", "types")
)
_KERNELS = f"""
    SELECT work, device.name, device.start, device.duration, {_FROM_CALL},
           coalesce(device.dims, annotation.dims, params.dims) AS dims,
           coalesce(device.types, annotation.types, params.types) AS types,
           [device.collective, params.collective, annotation.name, kernel_op, device.name] AS spellings
    FROM kineto_device AS device
    LEFT JOIN kineto_calls USING (work)
    LEFT JOIN kineto_around AS params ON kineto_calls.params = params.row
    LEFT JOIN kineto_around AS annotation ON kineto_calls.annotation = annotation.row
    WHERE communicates
"""
_HOST = """
    WITH named AS (
        SELECT *,
               -- Best first: work of the backend's thread, what torch passed to it, the call itself.
               CASE WHEN starts_with(name, 'c10d::') THEN 3 WHEN name = 'record_param_comms' THEN 2
                    WHEN regexp_matches(name, '^(gloo|nccl|mpi|ucc|hccl|xccl|rccl):') THEN 1 END AS source_rank
        FROM kineto_spans WHERE contains(name, ':') OR name = 'record_param_comms'
    ), calls AS (
        -- Of its messages the backend's own record says nothing; the call around its begin names the peer.
        SELECT pid, tid, start, start + duration AS until,
               regexp_extract("values", '^\\[[^,]*,[^,]*, *"?([0-9]+)', 1) AS peer
        FROM kineto_spans WHERE name IN ('c10d::send', 'c10d::recv_') AND "values" IS NOT NULL
    ), best AS (
        SELECT named.* REPLACE (coalesce(named.src, peers.peer) AS src, coalesce(named.dst, peers.peer) AS dst)
        FROM named ASOF LEFT JOIN calls AS peers
          ON named.pid = peers.pid AND named.tid = peers.tid AND named.start >= peers.start
        WHERE source_rank = (SELECT min(source_rank) FROM named)
    )
    SELECT *, NULL::BIGINT AS work, [collective, name] AS spellings FROM best
"""


def _stage(sink: Sink, source: str, select: str) -> int:
    sink.connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE kineto_communication AS
        SELECT work, name, {"pid, tid, " if source == "host" else ""}start, duration, {CALL_COLUMNS},
               '{source}' AS source, list_filter(spellings, lambda spelling: spelling IS NOT NULL) AS spellings
        FROM ({select})
        """
    )
    [(found,)] = sink.connection.execute("SELECT count(*) FROM kineto_communication").fetchall()
    return int(found)


_COLLECTIVES = """
    WITH ops AS (
        SELECT unnest(?::VARCHAR[][]) AS spellings, unnest(?::VARCHAR[]) AS op
    ), widths AS (
        SELECT unnest(?::VARCHAR[]) AS element, unnest(?::BIGINT[]) AS width
    ), ids AS (
        SELECT unnest(?::VARCHAR[]) AS pg_name, unnest(?::VARCHAR[]) AS id
    ), named AS (
        SELECT *, coalesce(id, nullif(pg_name, ''), ?::VARCHAR) AS "group",
               lower(replace(coalesce(dtype, TRY_CAST(types AS VARCHAR[])[1]), 'c10::', '')) AS element,
               -- Tensors of the call: [[4096, 1024], [1024]] → 4,195,328 elements.
               list_sum(list_transform(TRY_CAST(dims AS BIGINT[][]), lambda tensor: list_product(tensor)))
                   AS elements_given,
               TRY_CAST(coalesce(seq, seq_num) AS BIGINT) AS recorded
        FROM kineto_communication JOIN ops USING (spellings) LEFT JOIN ids USING (pg_name)
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
    SELECT if(source = 'kernels', launched.step, running.step) AS step, "group", op, name,
           CASE WHEN unambiguous THEN recorded ELSE ordinal END AS sequence,
           CASE op WHEN 'send' THEN TRY_CAST(dst AS BIGINT) WHEN 'receive' THEN TRY_CAST(src AS BIGINT) END AS peer,
           numbered.start, duration, TRY_CAST(elements * width AS BIGINT) AS bytes
    FROM numbered
    LEFT JOIN widths USING (element)
    LEFT JOIN kineto_work AS launched USING (work)
    ASOF LEFT JOIN kineto_steps AS running ON numbered.start >= running.start
"""


def first_op(spellings: Iterable[str | None]) -> str:
    """The operation by the first name that tells one: "coalesced" does not, the kernel's own name may."""
    return next((op for name in spellings if name and (op := op_of(name)) != "other"), "other")


def read_collectives(head: TraceHead, sink: Sink) -> None:
    rows = sink.connection.execute("SELECT DISTINCT spellings, source FROM kineto_communication").fetchall()
    # On the host, "other" is administration (init, wait, coalescing); a kernel of the library always moves data.
    ops = [(names, op) for names, source in rows if (op := first_op(names)) != "other" or source == "kernels"]
    only_group = head.groups[0].pg_name or None if len(head.groups) == 1 else None
    ids = group_ids(head)
    sink.add_query(
        "collectives",
        _COLLECTIVES,
        [
            [names for names, _ in ops],
            [op for _, op in ops],
            list(_WIDTHS),
            list(_WIDTHS.values()),
            list(ids),
            list(ids.values()),
            only_group,
        ],
    )
