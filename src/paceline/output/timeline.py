"""The timeline of a run as rows: what exports for Perfetto write, in whatever format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.output.rank_filter import rank_condition
from paceline.run.run import Run

_CHUNK = 50_000

_TIMELINE = """
    CREATE OR REPLACE TEMP TABLE timeline AS
    WITH
    with_events AS (SELECT DISTINCT rank FROM events),
    lanes AS (
        SELECT rank, 'Steps' AS track, 'step ' || step AS name, 'step' AS category, start, duration, NULL AS args
        FROM steps
        UNION ALL
        SELECT rank, track, name, category, start, duration, args FROM events
        UNION ALL
        -- Ranks without a recorded timeline still have their kernels and collectives.
        SELECT rank, 'Kernels/stream ' || coalesce(stream::VARCHAR, '?'), name, type, start, duration,
               json_object('operator', operator, 'module', module, 'code', code, 'input_shapes', input_shapes,
                           'input_types', input_types, 'output_shapes', output_shapes)
        FROM kernels WHERE rank NOT IN (FROM with_events) AND core IS DISTINCT FROM 'COMMUNICATION'
        UNION ALL
        SELECT rank, 'Communication/' || coalesce("group", ''), name, op, start, duration,
               json_object('group', "group", 'sequence', sequence, 'peer', peer, 'bytes', bytes, 'wait_ns', wait)
        FROM collectives WHERE rank NOT IN (FROM with_events)
    )
    SELECT rank, track, coalesce(name, '') AS name, coalesce(category, '') AS category, start,
           coalesce(duration, 0) AS duration, args,
           dense_rank() OVER (ORDER BY rank, track) AS lane
    FROM lanes WHERE start IS NOT NULL AND {chosen}
"""
_ARROWS = """
    CREATE OR REPLACE TEMP TABLE timeline_arrows AS
    WITH lanes AS (SELECT DISTINCT rank, track, lane FROM timeline)
    SELECT row_number() OVER (ORDER BY flows.rank, start, "end", name) AS id, flows.rank, coalesce(name, '') AS name,
           coalesce(category, '') AS category, source.lane AS start_lane, start, target.lane AS end_lane, "end"
    FROM flows
    JOIN lanes AS source ON flows.rank = source.rank AND start_track = source.track
    JOIN lanes AS target ON flows.rank = target.rank AND end_track = target.track
    WHERE start IS NOT NULL AND "end" IS NOT NULL
"""


@dataclass(frozen=True)
class Lane:
    """A row of the timeline: a thread, a stream or the steps of a rank."""

    number: int
    """Over all ranks, from 1."""
    rank: int
    name: str


@dataclass(frozen=True)
class Slice:
    lane: int
    name: str
    category: str
    start: int
    """ns since the first event"""
    duration: int
    args: str | None
    """JSON object."""


@dataclass(frozen=True)
class Arrow:
    """From one slice to another: a launch to its kernel, a forward operator to its backward one."""

    number: int
    name: str
    category: str
    start_lane: int
    start: int
    end_lane: int
    end: int


class Timeline:
    """The temporary tables of one export."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.hosts: dict[int, str | None] = dict(run.connection.execute("SELECT rank, host FROM ranks").fetchall())
        rows = run.connection.execute("SELECT DISTINCT lane, rank, track FROM timeline ORDER BY lane").fetchall()
        self.lanes = [Lane(*row) for row in rows]
        [(first,)] = run.connection.execute("SELECT coalesce(min(start), 0) FROM timeline").fetchall()
        self.first = int(first)

    def slices(self) -> Iterator[Slice]:
        """By lane, start and length: outer slices before those inside them."""
        found = self._run.connection.execute(
            "SELECT lane, name, category, start - ?, duration, args FROM timeline ORDER BY lane, start, duration DESC",
            [self.first],
        )
        while rows := found.fetchmany(_CHUNK):
            yield from (Slice(*row) for row in rows)

    def arrows(self) -> Iterator[Arrow]:
        found = self._run.connection.execute(
            'SELECT id, name, category, start_lane, start - ?, end_lane, "end" - ? FROM timeline_arrows ORDER BY id',
            [self.first, self.first],
        )
        while rows := found.fetchmany(_CHUNK):
            yield from (Arrow(*row) for row in rows)


@contextmanager
def timeline_of(run: Run, ranks: str | None) -> Iterator[Timeline]:
    """The timeline of all ranks, or of some, on one clock."""
    run.load(["steps", "events", "flows", "kernels", "collectives", "ranks"])
    run.connection.execute(_TIMELINE.format(chosen=rank_condition(run, ranks)))
    run.connection.execute(_ARROWS)
    try:
        yield Timeline(run)
    finally:
        run.connection.execute("DROP TABLE timeline_arrows")
        run.connection.execute("DROP TABLE timeline")
