"""A run as files for other tools: all tables as Parquet or CSV, or one Chrome trace of all ranks on one clock."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paceline.errors import PacelineError, UsageError
from paceline.run.batch import Warning
from paceline.run.run import TABLE_NAMES, Run
from paceline.whole import whole_file

SCHEMA = "paceline.tables/1"
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


def export_tables(run: Run, target: Path, kind: str, *, ranks: str | None = None) -> dict[str, int]:
    """Write every table that has rows into a new directory; returns table → rows."""
    chosen = rank_condition(run, ranks)
    with new_directory(target) as scratch:
        run.load(TABLE_NAMES)
        written = {}
        for name in TABLE_NAMES:
            rows = run.connection.view(name).filter(_of_ranks(chosen, run.connection.view(name).columns))
            count = int(rows.count("*").fetchall()[0][0])
            if not count:
                continue
            path = str(scratch / f"{name}.{kind}")
            rows.write_parquet(path, compression="zstd") if kind == "parquet" else rows.write_csv(path)
            written[name] = count
        # What readers noticed stands in no table, and still holds for what they read.
        marker = {"schema": SCHEMA, "tables": written, "warnings": [_noticed(each) for each in run.noticed_in_files]}
        (scratch / "paceline.json").write_text(json.dumps(marker, indent=2, ensure_ascii=False) + "\n")
    return written


def _noticed(warning: Warning) -> dict[str, str | int | None]:
    return {"rank": warning.rank, "file": warning.file, "message": warning.message, "line": warning.line}


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A scratch directory that becomes `target` when all went well; what exists already is never touched."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: exists already", hint="give a new directory with --output")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise PacelineError(f"{target}: cannot be written: {error.strerror}") from error
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            target.rmdir()
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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


def rank_condition(run: Run, ranks: str | None) -> str:
    """SQL for a list like 0,5,8-15; everything when there is none, an error when it names no rank of the run."""
    if ranks is None:
        return "true"
    pieces = []
    for piece in ranks.split(","):
        low, _, high = piece.strip().partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()):
            raise UsageError(f"--ranks {ranks}: {piece!r} is neither a rank nor a range", hint="example: 0,5,8-15")
        pieces.append(f"rank BETWEEN {int(low)} AND {int(high or low)}")
    condition = f"({' OR '.join(pieces)})"
    if not run.table("ranks").filter(condition).limit(1).fetchall():
        raise UsageError(f"--ranks {ranks}: none of them is in this run", hint=f"paceline show {run.source} ranks")
    return condition


def _of_ranks(condition: str, columns: list[str]) -> str:
    """Links belong to both their ends."""
    if "rank" in columns:
        return condition
    if "src" in columns:
        return " OR ".join(condition.replace("rank ", f"{end} ") for end in ("src", "dst"))
    return "true"


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
            yield _json({"ph": "X", "name": name, "cat": category, "pid": rank, "tid": numbers[rank, track],
                         "ts": start, "dur": duration})  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all; gzip when its name says so."""
    with whole_file(target) as path, path.open("wb") as plain:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=plain, mode="wb", compresslevel=5) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield plain
