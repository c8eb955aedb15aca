"""One Chrome trace of all ranks on one clock, which Perfetto opens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paceline.core.atomic_write import atomic_write_path
from paceline.core.i18n import text
from paceline.output.rank_filter import rank_condition
from paceline.output.writer import ExportOptions
from paceline.run.run import Run

_CHUNK = 50_000

_TIMELINE = """
    WITH
    told AS (SELECT DISTINCT rank FROM events),
    lanes AS (
        SELECT rank, 'Steps' AS track, 'step ' || step AS name, 'step' AS category, start, duration FROM steps
        UNION ALL
        SELECT rank, track, name, category, start, duration FROM events
        UNION ALL
        -- Ranks without a recorded timeline still have their kernels and collectives.
        SELECT rank, 'Kernels/stream ' || coalesce(stream::VARCHAR, '?'), name, type, start, duration
        FROM kernels WHERE rank NOT IN (FROM told) AND core IS DISTINCT FROM 'COMMUNICATION'
        UNION ALL
        SELECT rank, 'Communication/' || coalesce("group", ''), name, op, start, duration
        FROM collectives WHERE rank NOT IN (FROM told)
    )
    SELECT rank, track, name, coalesce(category, '') AS category, start, coalesce(duration, 0) AS duration
    FROM lanes WHERE start IS NOT NULL AND {chosen}
"""


def export_chrome_trace(run: Run, target: Path, *, ranks: str | None = None) -> int:
    """Write one timeline; times are µs since its first event, so that viewers keep nanoseconds."""
    run.load(["steps", "events", "kernels", "collectives", "ranks"])
    query = _TIMELINE.format(chosen=rank_condition(run, ranks))
    run.connection.execute(f"CREATE OR REPLACE TEMP TABLE timeline AS {query}")
    count = 0
    with _new_file(target) as out:
        out.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        separator = b""
        for line in _trace_lines(run):
            out.write(separator + line)
            separator = b",\n"
            count += 1
        out.write(b"\n]}\n")
    run.connection.execute("DROP TABLE timeline")
    return count


def _trace_lines(run: Run) -> Iterator[bytes]:
    tracks = run.connection.execute(
        "SELECT rank, track, row_number() OVER (PARTITION BY rank ORDER BY track) FROM timeline GROUP BY rank, track"
    ).fetchall()
    hosts = dict(run.connection.execute("SELECT rank, host FROM ranks").fetchall())
    for rank in sorted({rank for rank, _, _ in tracks}):
        name = f"rank {rank}" + (f" · {hosts[rank]}" if hosts.get(rank) else "")
        yield _json({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}})
        yield _json({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    for rank, track, number in tracks:
        yield _json({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": track}})
    numbers = {(rank, track): number for rank, track, number in tracks}
    events = run.connection.execute(
        "SELECT rank, track, name, category, (start - (SELECT min(start) FROM timeline)) / 1000, duration / 1000 "
        "FROM timeline ORDER BY rank, track, start, duration DESC"
    )
    while rows := events.fetchmany(_CHUNK):
        for rank, track, name, category, start, duration in rows:
            yield _json(
                {
                    "ph": "X",
                    "name": name,
                    "cat": category,
                    "pid": rank,
                    "tid": numbers[rank, track],
                    "ts": start,
                    "dur": duration,
                }
            )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all; gzip when its name says so."""
    with atomic_write_path(target) as path, path.open("wb") as plain:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain, mode="wb", compresslevel=5) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield plain


class ChromeTraceWriter:
    def default_name(self, source: str) -> str:
        return f"{source}.trace.json.gz"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        count = export_chrome_trace(run, target, ranks=options.ranks)
        return text("output.written.chrome_trace", options.language, target=target, count=f"{count:,}")


CHROME_TRACE = ChromeTraceWriter()
