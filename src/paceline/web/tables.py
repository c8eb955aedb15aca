"""The tables the pages show: which columns of metrics, with their units, filters and order.

Numbers are defined in paceline.metrics and worked out in the snapshot; here they are only chosen and filtered. Times are
ms, sizes bytes, bandwidth GB/s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from paceline.metrics.communication.collectives import (
    COLLECTIVE_ARRIVALS,
    COLLECTIVES_COMPARED,
    rank_communication,
    rank_operators,
)
from paceline.metrics.memory import ALLOCATIONS as MEMORY_ALLOCATIONS
from paceline.metrics.network.links import LINK_TOTALS, packets_by_size
from paceline.metrics.operators import compared_operators
from paceline.metrics.phases import rank_phases
from paceline.metrics.steps import PARTS
from paceline.web.paging import Column, Filters, PagedTable

Per = Literal["step", "total"]
_STEADY = "(step IS NULL OR step IN (SELECT step FROM steady_steps))"
WHO = (
    "($rank IS NULL OR list_contains($rank, rank)) AND ($host IS NULL OR host = $host) AND ($stage IS NULL OR stage = $stage) "
    'AND ($group IS NULL OR rank IN (SELECT rank FROM groups WHERE "group" = $group))'
)
_PARTS_SHOWN = ("data", "forward_backward", "phase_tail", *(part for part in PARTS if part != "data"))
_WHO_FILTERS = ("rank", "host", "stage", "group")


def _ms(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "ms") for name in names)


def _rank_columns() -> tuple[Column, ...]:
    return (Column("rank", "rank"), Column("host"), Column("device", "count"), Column("stage", "count"))


def _fixed(sql: str) -> Callable[[Filters], str]:
    return lambda filters: sql


def _of_steps(sql: Callable[[str], str]) -> Callable[[Filters], str]:
    """A SELECT over the step asked for, or over the steps that count."""
    return lambda filters: sql("step = $step" if filters.get("step") is not None else _STEADY)


def chosen_steps(step: int | None) -> str:
    """The same as a condition on `step`, for charts."""
    return _STEADY if step is None else f"step = {step:d}"


def links_in_step(step: int | None, per: Per) -> str:
    """Links with their columns: over the steps that count, or in one step; bytes and times per step or in total."""
    links = "link_totals" if step is None else f"({_step_links(f'step = {step:d}')})"
    return links if per == "total" else f"(SELECT * REPLACE ({_PER_STEP}) FROM {links})"


_PER_STEP = "bytes / steps AS bytes, duration / steps AS duration, expected / steps AS expected"


def _step_links(chosen: str) -> str:
    # The speed a transport reaches is that of all steps; a step is only compared with it.
    totals = LINK_TOTALS.format(chosen=chosen, nominal="NULL::DOUBLE")
    return f"""
        SELECT one.* EXCLUDE (top, nominal, speed, utilisation), every.speed, one.bandwidth / every.speed AS utilisation
        FROM ({totals}) AS one
        LEFT JOIN (SELECT transport, any_value(speed) AS speed FROM link_totals GROUP BY transport) AS every
          USING (transport)
    """


def _step_trace(filters: Filters) -> str:
    rows = "rank_means" if filters.get("step") is None else "(SELECT *, 1 AS steps FROM rank_steps WHERE step = $step)"
    phases = rank_phases(_STEADY if filters.get("step") is None else "step = $step")
    return f"SELECT * FROM {rows} LEFT JOIN ({phases}) USING (rank) JOIN ranks USING (rank) WHERE {WHO}"


STEP_TRACE = PagedTable(
    "step-trace",
    "Where each rank's step goes: the mean of the steps that count, or one step; the parts add up to the duration. "
    "forward_backward and phase_tail are no parts of their own: they span computing, communication and waiting. "
    "self_time and reference are medians over the steps, excess = self_time / reference - 1.",
    (
        *_rank_columns(),
        Column("steps", "count"),
        *_ms("duration", *_PARTS_SHOWN, "self_time", "reference"),
        Column("excess", "fraction"),
        *_ms("bubble"),
    ),
    _step_trace,
    ("step", *_WHO_FILTERS),
    "-excess",
)


def _communication(filters: Filters) -> str:
    """In the step asked for; else in the steps that count, or where a rank knows none of them whole, in all that it knows."""
    alone = filters.get("step") is not None
    found = rank_communication("step = $step") if alone else rank_communication(_STEADY, otherwise="true")
    return f"SELECT * FROM ({found}) JOIN ranks USING (rank) WHERE {WHO}"


COMMUNICATION = PagedTable(
    "communication",
    "Each rank's communication per step: time in collectives and messages, waiting for others, moving data; how often it "
    "came last, and the time that blocked all others. Of the steps that count; where a rank knows waiting in none of them "
    "whole, of `split_steps`, all those in which it knows any.",
    (
        *_rank_columns(),
        Column("calls", "count"),
        *_ms("time", "waiting", "transit"),
        Column("waiting_share", "fraction"),
        Column("bytes", "bytes"),
        Column("bandwidth", "rate"),
        Column("last", "fraction"),
        *_ms("blocked_time"),
        Column("split_steps"),
    ),
    _communication,
    ("step", *_WHO_FILTERS),
    "-blocked_time",
)


def _links(filters: Filters) -> str:
    source = "link_totals" if filters.get("step") is None else f"({_step_links('step = $step')})"
    if filters.get("per") != "total":
        source = f"(SELECT * REPLACE ({_PER_STEP}) FROM {source})"
    return f"""
        SELECT src, dst, sender.host AS src_host, receiver.host AS dst_host, scope, one."group", transport,
               bytes, duration / 1e6 AS time, bandwidth, reference, ratio, peers
        FROM {source} AS one
        LEFT JOIN ranks AS sender ON scope = 'global' AND src = sender.rank
        LEFT JOIN ranks AS receiver ON scope = 'global' AND dst = receiver.rank
        WHERE src <> dst AND scope = coalesce($scope, 'global')
          AND ($src IS NULL OR list_contains($src, src)) AND ($dst IS NULL OR list_contains($dst, dst))
          AND ($rank IS NULL OR list_contains($rank, src) OR list_contains($rank, dst))
          AND ($transport IS NULL OR transport = $transport) AND ($host IS NULL OR sender.host = $host OR receiver.host = $host)
    """


LINKS = PagedTable(
    "links",
    "Every link: bytes and time per step (per=total: in total), bandwidth, and what links of its class reach: same "
    "transport, same kind of message, groups of the same size, about as many bytes. ratio = bandwidth / reference. "
    "scope=group: links whose ends are numbers inside a communicator (group) whose members are unknown.",
    (
        Column("src", "rank"),
        Column("dst", "rank"),
        Column("src_host"),
        Column("dst_host"),
        Column("transport"),
        Column("bytes", "bytes"),
        *_ms("time"),
        Column("bandwidth", "rate"),
        Column("reference", "rate"),
        Column("ratio", "fraction"),
        Column("peers", "count"),
        Column("group"),
        Column("scope"),
    ),
    _links,
    ("step", "src", "dst", "rank", "host", "transport", "per", "scope"),
    "ratio",
)

COLLECTIVES = PagedTable(
    "collectives",
    "Every collective that several ranks recorded: how far apart they arrived, who came last, how long the others "
    "waited in all.",
    (
        Column("step", "count"),
        Column("op"),
        Column("kind"),
        Column("name"),
        Column("members", "count"),
        *_ms("spread"),
        Column("last_rank", "rank"),
        Column("last_host"),
        *_ms("waited", "longest", "shortest"),
        Column("bytes", "bytes"),
        Column("bandwidth", "rate"),
        Column("group"),
        Column("sequence", "count"),
    ),
    _fixed(f"""
        SELECT one.*, ranks.host AS last_host FROM ({COLLECTIVES_COMPARED}) AS one LEFT JOIN ranks ON last_rank = ranks.rank
        WHERE ($step IS NULL OR step = $step) AND ($group IS NULL OR "group" = $group) AND ($op IS NULL OR op = $op)
          AND ($rank IS NULL OR list_contains($rank, last_rank)) AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("step", "op", "group", "rank", "q"),
    "-waited",
)

ARRIVALS = PagedTable(
    "arrivals",
    "One collective: when each rank arrived after the first, how long it waited for the last, how long it stayed.",
    (
        *_rank_columns(),
        *_ms("late", "waited", "duration", "transit", "wait"),
        Column("bytes", "bytes"),
        Column("name"),
        Column("step", "count"),
    ),
    _fixed(f"""
        SELECT * FROM ({COLLECTIVE_ARRIVALS}) LEFT JOIN ranks USING (rank)
        WHERE "group" = $group AND op = $op AND sequence = $sequence
    """),
    ("group", "op", "sequence"),
    "-late",
    needs=("group", "op", "sequence"),
)

PACKETS = PagedTable(
    "packets",
    "In which packet sizes bytes travel, by transport.",
    (
        Column("transport"),
        Column("packet_bytes", "bytes"),
        Column("count", "count"),
        Column("bytes", "bytes"),
        *_ms("time"),
        Column("share", "fraction"),
        Column("bandwidth", "rate"),
    ),
    _of_steps(
        lambda chosen: packets_by_size(
            f"{chosen} AND ($rank IS NULL OR list_contains($rank, rank)) AND ($transport IS NULL OR transport = $transport)"
        )
    ),
    ("step", "rank", "transport"),
    "-time",
)

MEMORY = PagedTable(
    "memory",
    "Peak of each rank's device memory: its share of what there is, and how much more it is than its peers'.",
    (
        *_rank_columns(),
        Column("peak", "memory"),
        Column("capacity", "memory"),
        Column("share", "fraction"),
        Column("reference", "memory"),
        Column("excess", "fraction"),
        Column("static", "memory"),
        Column("basis"),
    ),
    _fixed(f"SELECT * FROM rank_memory JOIN ranks USING (rank) WHERE {WHO}"),
    _WHO_FILTERS,
    "-peak",
)

ALLOCATIONS = PagedTable(
    "allocations",
    "What took a rank's memory: single allocations, or nodes of the graph where memory was planned.",
    (
        Column("name"),
        Column("kind"),
        Column("size", "memory"),
        *_ms("lifetime"),
        Column("allocated", "memory"),
        Column("position", "count"),
    ),
    _fixed(f"""
        SELECT * FROM ({MEMORY_ALLOCATIONS}) WHERE list_contains($rank, rank) AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-size",
    needs=("rank",),
)

FLOPS = PagedTable(
    "flops",
    "Work of each rank per step and the rate it was done at: as recorded, or counted from its matrix products.",
    (
        *_rank_columns(),
        Column("unit"),
        Column("flops", "number"),
        Column("flops_per_s", "number"),
        Column("utilisation", "fraction"),
        Column("mfu", "fraction"),
        Column("basis"),
    ),
    _fixed(f"SELECT * FROM flops JOIN ranks USING (rank) WHERE name IS NULL AND {WHO}"),
    _WHO_FILTERS,
    "-flops",
)

OPERATOR_FLOPS = PagedTable(
    "operator-flops",
    "Work of a rank's operators: as recorded, or counted from the shapes of matrix products.",
    (
        Column("name"),
        Column("unit"),
        Column("flops", "number"),
        Column("flops_per_s", "number"),
        Column("utilisation", "fraction"),
    ),
    _fixed("""
        SELECT name, unit, flops, flops_per_s, utilisation FROM flops
        WHERE list_contains($rank, rank) AND name IS NOT NULL AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-flops",
    needs=("rank",),
)


def _operators(filters: Filters) -> str:
    """By type, or by name inside types."""
    return f"""
        SELECT * FROM ({compared_operators(by_name=filters.get("level") == "name")})
        WHERE list_contains($rank, rank) AND ($level IS NULL OR true)
          AND ($q IS NULL OR contains(lower(coalesce(name, type)), lower($q)))
    """


OPERATORS = PagedTable(
    "operators",
    "A rank's operators by type or by name: time per step, mean of one execution, and what its peers need for one.",
    (
        Column("type"),
        Column("name"),
        Column("core"),
        Column("count", "count"),
        *_ms("time"),
        Column("share", "fraction"),
        *_ms("mean", "reference"),
        Column("excess", "fraction"),
        *_ms("min", "max"),
    ),
    _operators,
    ("rank", "level", "q"),
    "-time",
    needs=("rank",),
)

CARD_COLLECTIVES = PagedTable(
    "card-collectives",
    "A rank's communication operators by name.",
    (
        Column("op"),
        Column("kind"),
        Column("name"),
        Column("calls", "count"),
        *_ms("time", "longest", "wait", "transit"),
        Column("bytes", "bytes"),
        Column("bandwidth", "rate"),
    ),
    _of_steps(
        lambda chosen: (
            f"""
            SELECT * FROM ({rank_operators(chosen)})
            WHERE list_contains($rank, rank) AND ($q IS NULL OR contains(lower(name), lower($q)))
        """
        )
    ),
    ("rank", "step", "q"),
    "-time",
    needs=("rank",),
)

INPUT_PIPELINE = PagedTable(
    "input-pipeline",
    "A rank's dataset operators, from the device back to the files, with their queues.",
    (
        Column("op_id", "count"),
        Column("op"),
        Column("stage"),
        Column("parent", "count"),
        Column("workers", "count"),
        Column("queue_size", "number"),
        Column("queue_capacity", "count"),
        Column("queue_empty", "fraction"),
        *_ms("time"),
        Column("cpu", "number"),
    ),
    _fixed("""
        SELECT op_id, op, stage, parent, workers, queue_size, queue_capacity, queue_empty, time / 1e6 AS time, cpu
        FROM input_pipeline WHERE list_contains($rank, rank)
    """),
    ("rank",),
    "op_id",
    needs=("rank",),
)

HOST_CALLS = PagedTable(
    "host-calls",
    "What a rank's host spent its time on, by API.",
    (Column("layer"), Column("name"), Column("count", "count"), *_ms("time", "min", "max")),
    _fixed("""
        SELECT layer, name, count, time / 1e6 AS time, min / 1e6 AS min, max / 1e6 AS max FROM host_calls
        WHERE list_contains($rank, rank) AND ($q IS NULL OR contains(lower(name), lower($q)))
    """),
    ("rank", "q"),
    "-time",
    needs=("rank",),
)

CARD_STEPS = PagedTable(
    "card-steps",
    "A rank's steps one by one; the parts add up to the duration.",
    (
        Column("step", "count"),
        *_ms("duration", *_PARTS_SHOWN, "self_time", "reference"),
        Column("excess", "fraction"),
        *_ms("bubble"),
    ),
    _fixed("""
        SELECT one.*, phases.forward_backward / 1e6 AS forward_backward,
               phases.tail / 1e6 AS phase_tail
        FROM rank_steps AS one LEFT JOIN steps AS phases ON one.rank = phases.rank AND one.step = phases.step
        WHERE list_contains($rank, one.rank) AND one.step IS NOT NULL
    """),
    ("rank",),
    "step",
    needs=("rank",),
)

GROUPS = PagedTable(
    "groups",
    "Communication groups and their members.",
    (Column("group"), Column("kind"), Column("members", "count"), Column("ranks")),
    _fixed("""
        SELECT "group", any_value(kind) AS kind, count(*) AS members, string_agg(rank, ',' ORDER BY index, rank) AS ranks
        FROM groups
        WHERE $rank IS NULL OR "group" IN (SELECT "group" FROM groups WHERE list_contains($rank, rank)) GROUP BY "group"
    """),
    ("rank",),
    "kind",
)

TABLES: dict[str, PagedTable] = {
    table.name: table
    for table in (
        GROUPS,
        STEP_TRACE,
        COMMUNICATION,
        LINKS,
        COLLECTIVES,
        ARRIVALS,
        PACKETS,
        MEMORY,
        ALLOCATIONS,
        FLOPS,
        OPERATOR_FLOPS,
        OPERATORS,
        CARD_COLLECTIVES,
        INPUT_PIPELINE,
        HOST_CALLS,
        CARD_STEPS,
    )
}
