"""Every table the pages show, as SQL over a run's snapshot. Times are ms, sizes bytes, bandwidth GB/s."""

from __future__ import annotations

from collections.abc import Callable

from paceline.tables import INPUT_WAIT
from paceline.web.paging import Column, Filters, PagedTable

_STEP = "($step IS NULL OR step = $step)"
_WHO = (
    "($rank IS NULL OR rank = $rank) AND ($host IS NULL OR host = $host) AND ($stage IS NULL OR stage = $stage) "
    'AND ($group IS NULL OR rank IN (SELECT rank FROM groups WHERE "group" = $group))'
)
_WHO_FILTERS = ("rank", "host", "stage", "group")


def _ms(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "ms") for name in names)


def _rank_columns() -> tuple[Column, ...]:
    return (Column("rank", "rank"), Column("host"), Column("device", "count"), Column("stage", "count"))


def _fixed(sql: str) -> Callable[[Filters], str]:
    return lambda filters: sql


STEP_TRACE = PagedTable(
    "step-trace",
    "Where each rank's step goes: the mean of all steps, or one step. own = duration - exposed communication; excess "
    "compares it with the median of the same pipeline stage.",
    (
        *_rank_columns(), Column("steps", "count"),
        *_ms("duration", "data_wait", "forward_backward", "tail", "computing", "exposed", "overlapped", "free", "bubble",
             "own"),
        Column("excess", "fraction"),
    ),
    _fixed(f"""
        WITH usual AS (
            SELECT rank, count(*) AS steps, avg(duration) / 1e6 AS duration,
                   avg({INPUT_WAIT}) / 1e6 AS data_wait,
                   avg(forward_backward) / 1e6 AS forward_backward, avg(tail) / 1e6 AS tail,
                   avg(computing) / 1e6 AS computing, avg(exposed) / 1e6 AS exposed,
                   avg(overlapped) / 1e6 AS overlapped, avg(free) / 1e6 AS free, avg(bubble) / 1e6 AS bubble,
                   avg(coalesce(duration - exposed, computing, forward_backward)) / 1e6 AS own
            FROM steps WHERE {_STEP} GROUP BY rank
        ),
        compared AS (
            SELECT *, own / nullif(median(own) OVER (PARTITION BY stage), 0) - 1 AS excess
            FROM usual JOIN ranks USING (rank)
        )
        SELECT * FROM compared WHERE {_WHO}
    """),
    ("step", *_WHO_FILTERS),
    "-excess",
)  # fmt: skip

COMMUNICATION = PagedTable(
    "communication",
    "Each rank's communication a step: time in collectives and messages, waiting for others, moving data; how often it "
    "came last and held the others up.",
    (
        *_rank_columns(), Column("calls", "count"), *_ms("time", "wait", "transit"), Column("wait_share", "fraction"),
        Column("bytes", "bytes"), Column("bandwidth", "rate"), Column("last", "fraction"), *_ms("held"),
    ),
    _fixed(f"""
        WITH summed AS (
            SELECT rank, sum(calls) / count(DISTINCT coalesce(step, 0)) AS calls,
                   sum(duration) / count(DISTINCT coalesce(step, 0)) / 1e6 AS time,
                   coalesce(nullif(sum(wait), 0), sum(early)) / count(DISTINCT coalesce(step, 0)) / 1e6 AS wait,
                   sum(transit) / count(DISTINCT coalesce(step, 0)) / 1e6 AS transit,
                   sum(bytes) / count(DISTINCT coalesce(step, 0)) AS bytes,
                   sum(bytes) / nullif(sum(transit), 0) AS bandwidth,
                   sum(last) / nullif(sum(meetings), 0) AS last,
                   sum(held) / count(DISTINCT coalesce(step, 0)) / 1e6 AS held
            FROM rank_collectives WHERE {_STEP} GROUP BY rank
        )
        SELECT *, wait / nullif(time, 0) AS wait_share FROM summed JOIN ranks USING (rank) WHERE {_WHO}
    """),
    ("step", *_WHO_FILTERS),
    "-held",
)  # fmt: skip


def _links(filters: Filters) -> str:
    """All steps are summed beforehand; one step is summed here."""
    source, classes = "link_sums", "link_classes"
    if filters.get("step") is not None:
        classes = """(
            SELECT transport, round(log2(greatest(bytes, 1)) / 2) AS size, median(bytes / nullif(duration, 0)) AS usual,
                   count(*) AS links
            FROM links WHERE step = $step AND src <> dst GROUP BY ALL
        )"""
        source = """(
            SELECT src, dst, scope, "group", transport, sum(bytes)::BIGINT AS bytes, sum(duration)::BIGINT AS duration,
                   sum(bytes) / nullif(sum(duration), 0) AS bandwidth
            FROM links WHERE step = $step GROUP BY ALL
        )"""
    return f"""
        WITH judged AS (
            SELECT one.*, usual, bandwidth / nullif(usual, 0) AS ratio, links AS peers
            FROM {source} AS one LEFT JOIN {classes} AS class
              ON one.transport = class.transport AND round(log2(greatest(bytes, 1)) / 2) = class.size
        )
        SELECT src, dst, sender.host AS src_host, receiver.host AS dst_host, scope, transport, bytes,
               duration / 1e6 AS time, bandwidth, usual, ratio
        FROM judged
        LEFT JOIN ranks AS sender ON scope = 'global' AND src = sender.rank
        LEFT JOIN ranks AS receiver ON scope = 'global' AND dst = receiver.rank
        WHERE src <> dst AND ($src IS NULL OR src = $src) AND ($dst IS NULL OR dst = $dst)
          AND ($rank IS NULL OR src = $rank OR dst = $rank) AND ($transport IS NULL OR transport = $transport)
          AND ($host IS NULL OR sender.host = $host OR receiver.host = $host)
    """


LINKS = PagedTable(
    "links",
    "Every link: bytes, time, bandwidth, and the median of links of the same transport that carry about as much.",
    (
        Column("src", "rank"), Column("dst", "rank"), Column("src_host"), Column("dst_host"), Column("transport"),
        Column("bytes", "bytes"), *_ms("time"), Column("bandwidth", "rate"), Column("usual", "rate"),
        Column("ratio", "fraction"), Column("scope"),
    ),
    _links,
    ("step", "src", "dst", "rank", "host", "transport"),
    "ratio",
)  # fmt: skip

COLLECTIVES = PagedTable(
    "collectives",
    "Every collective that several ranks recorded: how far apart they arrived, who came last, how long the others "
    "waited in all.",
    (
        Column("step", "count"), Column("op"), Column("kind"), Column("name"), Column("members", "count"),
        *_ms("spread"), Column("last_rank", "rank"), Column("last_host"), *_ms("waited", "longest", "shortest"),
        Column("bytes", "bytes"), Column("bandwidth", "rate"), Column("group"), Column("sequence", "count"),
    ),
    _fixed("""
        SELECT meetings.* EXCLUDE (longest, shortest, waited), (last_arrival - first_arrival) / 1e6 AS spread,
               waited / 1e6 AS waited, longest / 1e6 AS longest, shortest / 1e6 AS shortest,
               bytes / nullif(transit, 0) AS bandwidth, ranks.host AS last_host
        FROM meetings LEFT JOIN ranks ON last_rank = ranks.rank
        WHERE ($step IS NULL OR step = $step) AND ($group IS NULL OR "group" = $group) AND ($op IS NULL OR op = $op)
          AND ($rank IS NULL OR last_rank = $rank) AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("step", "op", "group", "rank", "q"),
    "-waited",
)  # fmt: skip

ARRIVALS = PagedTable(
    "arrivals",
    "One collective: when each rank arrived after the first, how long it waited for the last, how long it stayed.",
    (*_rank_columns(), *_ms("late", "waited", "duration", "transit", "wait"), Column("bytes", "bytes")),
    _fixed("""
        SELECT rank, host, device, stage, (coalesce(start, -duration) - first_arrival) / 1e6 AS late,
               (last_arrival - coalesce(start, -duration)) / 1e6 AS waited, duration / 1e6 AS duration,
               one.transit / 1e6 AS transit, wait / 1e6 AS wait, one.bytes AS bytes
        FROM collectives AS one JOIN meetings USING ("group", op, sequence) LEFT JOIN ranks USING (rank)
        WHERE "group" = $group AND op = $op AND sequence = $sequence
    """),
    ("group", "op", "sequence"),
    "-late",
    needs=("group", "op", "sequence"),
)

PACKETS = PagedTable(
    "packets",
    "In which packet sizes bytes travel, by transport.",
    (Column("transport"), Column("packet_bytes", "bytes"), Column("count", "count"), Column("bytes", "bytes"),
     *_ms("time"), Column("share", "fraction"), Column("bandwidth", "rate")),
    _fixed(f"""
        SELECT transport, packet_bytes, sum(count) AS count, sum(packet_bytes * count) AS bytes,
               sum(duration) / 1e6 AS time, sum(duration) / sum(sum(duration)) OVER (PARTITION BY transport) AS share,
               sum(packet_bytes * count) / nullif(sum(duration), 0) AS bandwidth
        FROM packets WHERE {_STEP} AND ($rank IS NULL OR rank = $rank)
          AND ($transport IS NULL OR transport = $transport)
        GROUP BY transport, packet_bytes
    """),
    ("step", "rank", "transport"),
    "-time",
)  # fmt: skip

MEMORY = PagedTable(
    "memory",
    "Peak of each rank's device memory against what there is.",
    (*_rank_columns(), Column("peak", "bytes"), Column("capacity", "bytes"), Column("share", "fraction"),
     Column("static", "bytes"), Column("basis")),
    _fixed(f"""
        SELECT *, peak / nullif(capacity, 0) AS share FROM ranks_memory JOIN ranks USING (rank) WHERE {_WHO}
    """),
    _WHO_FILTERS,
    "-peak",
)  # fmt: skip

ALLOCATIONS = PagedTable(
    "allocations",
    "What took a rank's memory: single allocations, or nodes of the graph where memory was planned.",
    (Column("name"), Column("kind"), Column("size", "bytes"), *_ms("lifetime"), Column("allocated", "bytes"),
     Column("position", "count")),
    _fixed("""
        SELECT name, kind, coalesce(size, allocated) AS size, lifetime / 1e6 AS lifetime, allocated, position
        FROM memory WHERE rank = $rank AND kind IN ('operator', 'node')
          AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-size",
    needs=("rank",),
)  # fmt: skip

FLOPS = PagedTable(
    "flops",
    "Work of each rank a step and the rate it was done at: as recorded, or counted from its matrix products.",
    (*_rank_columns(), Column("unit"), Column("flops", "number"), Column("flops_per_s", "number"),
     Column("utilisation", "fraction"), Column("basis")),
    _fixed(f"SELECT * FROM flops JOIN ranks USING (rank) WHERE name IS NULL AND {_WHO}"),
    _WHO_FILTERS,
    "-flops",
)  # fmt: skip

OPERATOR_FLOPS = PagedTable(
    "operator-flops",
    "Work of a rank's operators: as recorded, or counted from the shapes of matrix products.",
    (Column("name"), Column("unit"), Column("flops", "number"), Column("flops_per_s", "number"),
     Column("utilisation", "fraction")),
    _fixed("""
        SELECT name, unit, flops, flops_per_s, utilisation FROM flops
        WHERE rank = $rank AND name IS NOT NULL AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-flops",
    needs=("rank",),
)  # fmt: skip


def _operators(filters: Filters) -> str:
    """By type, or by name inside types."""
    by_name = filters.get("level") == "name"
    name = "name" if by_name else "NULL"
    return f"""
        WITH own AS (
            SELECT type, {name} AS name, string_agg(DISTINCT core, ', ') AS core, sum(count) AS count,
                   sum(time) / any_value(greatest(coalesce(steps, 1), 1)) AS time, min(min) AS min, max(max) AS max,
                   any_value(stage) AS stage, sum(time) / sum(sum(time)) OVER () AS share
            FROM operator_times JOIN stages USING (rank) LEFT JOIN counted_steps USING (rank)
            WHERE rank = $rank AND ($level IS NULL OR true) {"AND name IS NOT NULL" if by_name else ""}
            GROUP BY type{", operator_times.name" if by_name else ""}
        )
        SELECT own.type, own.name, core, count, time / 1e6 AS time, share, own.min / 1e6 AS min, own.max / 1e6 AS max,
               usual / 1e6 AS usual,
               if(ranks > 1, time / nullif(usual, 0) - 1, NULL) AS excess
        FROM own LEFT JOIN operator_usual AS peers
          ON own.stage = peers.stage AND own.type = peers.type AND own.name IS NOT DISTINCT FROM peers.name
        WHERE $q IS NULL OR contains(lower(coalesce(own.name, own.type)), lower($q))
    """


OPERATORS = PagedTable(
    "operators",
    "A rank's operators by type or by name: time a step, and the median of the ranks of its stage.",
    (Column("type"), Column("name"), Column("core"), Column("count", "count"), *_ms("time"), Column("share", "fraction"),
     *_ms("usual"), Column("excess", "fraction"), *_ms("min", "max")),
    _operators,
    ("rank", "level", "q"),
    "-time",
    needs=("rank",),
)  # fmt: skip

CARD_COLLECTIVES = PagedTable(
    "card-collectives",
    "A rank's communication operators by name.",
    (Column("op"), Column("kind"), Column("name"), Column("calls", "count"), *_ms("time", "longest", "wait", "transit"),
     Column("bytes", "bytes"), Column("bandwidth", "rate")),
    _fixed(f"""
        SELECT op, kind, name, count(*) AS calls, sum(duration) / 1e6 AS time, max(duration) / 1e6 AS longest,
               sum(wait) / 1e6 AS wait, sum(transit) / 1e6 AS transit, sum(bytes) AS bytes,
               sum(bytes) / nullif(sum(transit), 0) AS bandwidth
        FROM collectives LEFT JOIN kinds USING ("group")
        WHERE rank = $rank AND {_STEP} AND ($q IS NULL OR contains(lower(name), lower($q)))
        GROUP BY op, kind, name
    """),
    ("rank", "step", "q"),
    "-time",
    needs=("rank",),
)  # fmt: skip

INPUT_PIPELINE = PagedTable(
    "input-pipeline",
    "A rank's dataset operators, from the device back to the files, with their queues.",
    (Column("op_id", "count"), Column("op"), Column("stage"), Column("parent", "count"), Column("workers", "count"),
     Column("queue_size", "number"), Column("queue_capacity", "count"), Column("queue_empty", "fraction"), *_ms("time"),
     Column("cpu", "number")),
    _fixed("""
        SELECT op_id, op, stage, parent, workers, queue_size, queue_capacity, queue_empty, time / 1e6 AS time, cpu
        FROM input_pipeline WHERE rank = $rank
    """),
    ("rank",),
    "op_id",
    needs=("rank",),
)  # fmt: skip

HOST_CALLS = PagedTable(
    "host-calls",
    "What a rank's host spent its time on, by API.",
    (Column("layer"), Column("name"), Column("count", "count"), *_ms("time", "min", "max")),
    _fixed("""
        SELECT layer, name, count, time / 1e6 AS time, min / 1e6 AS min, max / 1e6 AS max FROM host_calls
        WHERE rank = $rank AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-time",
    needs=("rank",),
)

CARD_STEPS = PagedTable(
    "card-steps",
    "A rank's steps one by one.",
    (Column("step", "count"), *_ms("duration", "data_wait", "forward_backward", "tail", "computing", "exposed",
                                   "overlapped", "free", "bubble")),
    _fixed(f"""
        SELECT step, duration / 1e6 AS duration, {INPUT_WAIT} / 1e6 AS data_wait,
               forward_backward / 1e6 AS forward_backward, tail / 1e6 AS tail, computing / 1e6 AS computing,
               exposed / 1e6 AS exposed, overlapped / 1e6 AS overlapped, free / 1e6 AS free, bubble / 1e6 AS bubble
        FROM steps WHERE rank = $rank AND step IS NOT NULL
    """),
    ("rank",),
    "step",
    needs=("rank",),
)  # fmt: skip

GROUPS = PagedTable(
    "groups",
    "Communication groups and their members.",
    (Column("group"), Column("kind"), Column("members", "count"), Column("ranks")),
    _fixed("""
        SELECT "group", any_value(kind) AS kind, count(*) AS members, string_agg(rank, ',' ORDER BY index, rank) AS ranks
        FROM groups WHERE ($rank IS NULL OR "group" IN (SELECT "group" FROM groups WHERE rank = $rank)) GROUP BY "group"
    """),
    ("rank",),
    "kind",
)

TABLES: dict[str, PagedTable] = {
    table.name: table
    for table in (GROUPS, STEP_TRACE, COMMUNICATION, LINKS, COLLECTIVES, ARRIVALS, PACKETS, MEMORY, ALLOCATIONS, FLOPS,
                  OPERATOR_FLOPS, OPERATORS, CARD_COLLECTIVES, INPUT_PIPELINE, HOST_CALLS, CARD_STEPS)
}  # fmt: skip
