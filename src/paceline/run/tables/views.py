"""The public tables, as SQL over the rows that readers stored (schema `raw`).

Small tables are derived first (run/tables/derivation.py): `clock` (rank, clock_offset), `inferred` (name, rank, inferred_group,
index, confidence), `members` (the rows of groups) and `stages` (rank, stage). With them timestamps are put on one clock and
communicator-local ranks become global ones.
"""

from __future__ import annotations

from paceline.core.schema import TABLES

MEMBERS = """
    WITH
    declared AS (
        SELECT "group", max(kind) AS kind, index, rank, coalesce(max(source), 'declared') AS source,
               max(confidence) AS confidence
        FROM raw.groups WHERE "group" IS NOT NULL GROUP BY "group", index, rank
    ),
    -- A rank that copies inside itself records the link k-k: k is its index in the communicator.
    self_links AS (
        SELECT "group", 'other' AS kind, src AS index, rank, 'declared' AS source, NULL::DOUBLE AS confidence
        FROM raw.transfers
        WHERE scope = 'group' AND src = dst AND "group" IS NOT NULL
          AND "group" NOT IN (SELECT "group" FROM declared)
        GROUP BY "group", src, rank
    ),
    known AS (FROM declared UNION ALL FROM self_links),
    seen AS (
        SELECT DISTINCT "group", 'other' AS kind, NULL::BIGINT AS index, rank, 'declared' AS source,
               NULL::DOUBLE AS confidence
        FROM raw.collectives
        WHERE "group" IS NOT NULL AND "group" NOT IN (SELECT "group" FROM known)
    ),
    inferred_members AS (
        SELECT inferred_group AS "group", 'other' AS kind, index, rank, 'inferred' AS source, max(confidence) AS confidence
        FROM inferred GROUP BY inferred_group, index, rank
    ),
    every_group AS (FROM known UNION ALL FROM seen UNION ALL FROM inferred_members),
    sizes AS (SELECT "group", count(*) AS size FROM every_group GROUP BY "group"),
    cluster AS (SELECT count(DISTINCT rank) AS size FROM every_group)
    SELECT "group",
           if(kind = 'other' AND sizes.size = cluster.size AND cluster.size > 1, 'world', kind) AS kind, index, rank,
           source, confidence
    FROM every_group JOIN sizes USING ("group") CROSS JOIN cluster
"""

RANKS = """
    WITH RECURSIVE
    identified AS (
        SELECT rank, any_value(host) AS host, any_value(device) AS device, any_value(card) AS card, any_value(stage) AS stage,
               any_value(note) AS known_note
        FROM raw.ranks WHERE rank IS NOT NULL GROUP BY rank
    ),
    recorded AS (
        SELECT rank, string_agg(DISTINCT format, ', ' ORDER BY format) AS format, any_value(path) AS path
        FROM (
            SELECT rank, format, path FROM recordings
            UNION ALL
            SELECT rank, format, path FROM raw.ranks WHERE format IS NOT NULL
        ) GROUP BY rank
    ),
    -- Pipeline groups hold all stages, or two neighbouring ones each: a stage is the number of stages before it.
    neighbours AS (
        SELECT DISTINCT a.rank AS before, b.rank AS behind
        FROM members AS a JOIN members AS b ON a."group" = b."group" AND b.index = a.index + 1
        WHERE a."group" IN (SELECT "group" FROM raw.groups WHERE kind = 'pp')  -- kinds by structure have no order
    ),
    chain AS (
        SELECT DISTINCT before AS rank, 0 AS stage FROM neighbours WHERE before NOT IN (SELECT behind FROM neighbours)
        UNION
        SELECT behind, stage + 1 FROM chain JOIN neighbours ON before = rank WHERE stage < 1024
    ),
    pipeline AS (SELECT rank, max(stage) AS stage FROM chain GROUP BY rank),
    -- Most ranks declare the same stage: a rank that lost its metadata is none of another.
    only_stage AS (
        SELECT min(stage) AS stage FROM identified HAVING min(stage) = max(stage) AND 2 * count(stage) > count(*)
    ),
    -- A rank in two groups of one kind with different indices (a mesh of its own) has no single coordinate.
    indices AS (
        SELECT rank, kind, if(count(DISTINCT index) = 1, any_value(index), NULL) AS index FROM members
        WHERE kind IN ('dp', 'tp', 'cp', 'ep') AND index IS NOT NULL GROUP BY rank, kind
    ),
    coordinates AS (
        SELECT rank, any_value(index) FILTER (kind = 'dp') AS dp, any_value(index) FILTER (kind = 'tp') AS tp,
               any_value(index) FILTER (kind = 'cp') AS cp, any_value(index) FILTER (kind = 'ep') AS ep
        FROM indices GROUP BY rank
    ),
    everyone AS (
        SELECT rank FROM recorded UNION SELECT rank FROM identified UNION SELECT rank FROM members
    )
    SELECT rank, host, device, card,
           coalesce(
               identified.stage, pipeline.stage, stages.stage, if(format IS NULL, NULL, (SELECT stage FROM only_stage))
           ) AS stage,
           coordinates.dp, coordinates.tp, coordinates.cp, coordinates.ep, format, path, clock_offset,
           format IS NOT NULL AND note IS NULL AND known_note IS NULL AS complete,
           if(format IS NULL, 'no recording of this rank was found', coalesce(note, known_note)) AS note
    FROM everyone
    LEFT JOIN identified USING (rank)
    LEFT JOIN recorded USING (rank)
    LEFT JOIN pipeline USING (rank)
    LEFT JOIN stages USING (rank)
    LEFT JOIN coordinates USING (rank)
    LEFT JOIN clock USING (rank)
    LEFT JOIN notes USING (rank)
    ORDER BY rank
"""

TRANSFERS = """
    SELECT transfer.rank, transfer.step, transfer."group", transfer.name, transfer.sequence,
           CASE WHEN translated THEN sender.rank ELSE src END AS src,
           CASE WHEN translated THEN receiver.rank ELSE dst END AS dst,
           CASE WHEN translated THEN 'global' ELSE scope END AS scope,
           transport, bytes, duration, wait
    FROM (
        SELECT stored.* REPLACE (coalesce("group", inferred_group) AS "group")
        FROM raw.transfers AS stored LEFT JOIN (SELECT name, rank, inferred_group, operator FROM inferred) USING (name, rank)
    ) AS transfer
    LEFT JOIN members AS sender ON transfer."group" = sender."group" AND transfer.src = sender.index
    LEFT JOIN members AS receiver ON transfer."group" = receiver."group" AND transfer.dst = receiver.index,
    LATERAL (SELECT scope = 'group' AND sender.rank IS NOT NULL AND receiver.rank IS NOT NULL AS translated)
"""

LINKS = """
    SELECT step, CASE WHEN scope = 'group' THEN "group" END AS "group", src, dst, scope, transport,
           sum(bytes)::BIGINT AS bytes, sum(duration)::BIGINT AS duration, sum(wait)::BIGINT AS wait,
           sum(bytes) / nullif(sum(duration), 0) AS bandwidth
    FROM transfers
    GROUP BY ALL
    ORDER BY ALL
"""

_CLOCKED = {
    "steps": ("start", "end"),
    "kernels": ("start", "launch"),
    "collectives": ("start",),
    "events": ("start",),
    "flows": ("start", "end"),
    "counters": ("time",),
    "memory": ("time",),
}

_GROUPED = ("collectives", "packets")
# If the group is inferred, the recorded sequence counts executions of each operator name; together with the operator's
# number it identifies one collective by (group, op, sequence).
_SEQUENCE = """
    if(stored."group" IS NULL AND inferred_group IS NOT NULL,
       stored.sequence * 10000000000
           + coalesce(TRY_CAST(regexp_extract(operator, '([0-9]+)[^0-9]*$', 1) AS BIGINT), hash(operator) % 1000000000)::BIGINT,
       stored.sequence)
"""

GROUPED_COLLECTIVES = f"""
    SELECT stored.* REPLACE (coalesce(stored."group", inferred_group) AS "group", {_SEQUENCE} AS sequence)
    FROM raw.collectives AS stored LEFT JOIN (SELECT name, rank, inferred_group, operator FROM inferred) USING (name, rank)
"""
"""Collectives in their groups, each rank on its own clock."""

DEPENDS: dict[str, frozenset[str]] = {
    name: frozenset({name} | ({"collectives"} if name in (*_CLOCKED, *_GROUPED) else set())) for name in TABLES
} | {
    "ranks": frozenset({"ranks", "groups", "transfers", "collectives"}),
    "groups": frozenset({"ranks", "groups", "transfers", "collectives"}),
    "transfers": frozenset({"ranks", "groups", "transfers", "collectives"}),
    "links": frozenset({"ranks", "groups", "transfers", "collectives"}),
}
"""Stored tables that a public table needs."""


def public(name: str) -> str:
    """The SELECT that defines a public table."""
    if name == "ranks":
        return RANKS
    if name == "groups":
        return 'SELECT * FROM members ORDER BY "group", index, rank'
    if name == "transfers":
        return TRANSFERS
    if name == "links":
        return LINKS
    columns = ", ".join(_on_cluster_clock(name, column) for column in TABLES[name].column_names)
    joined = " LEFT JOIN clock USING (rank)" if name in _CLOCKED else ""
    if name in _GROUPED:
        columns = columns.replace('stored."group"', 'coalesce(stored."group", inferred_group) AS "group"')
        columns = columns.replace('stored."sequence"', f"{_SEQUENCE} AS sequence")
        joined += " LEFT JOIN inferred USING (name, rank)"
    return f"SELECT {columns} FROM raw.{name} AS stored{joined}"


def _on_cluster_clock(table: str, column: str) -> str:
    quoted = f'"{column}"'
    if column in _CLOCKED.get(table, ()):
        return f"{quoted} - coalesce(clock_offset, 0) AS {quoted}"
    return quoted if column in ("rank", "name") else f"stored.{quoted}"
