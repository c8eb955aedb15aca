"""From any source, near or far, to a Run."""

from __future__ import annotations

from pathlib import Path

from paceline.run.engines import engine_for
from paceline.run.index import Progress, Reading
from paceline.run.run import Run
from paceline.storage.localize import localize
from paceline.storage.location import is_remote, parse


def open_run(
    source: str | Path, *, store: str | Path | None, workers: int, engine: str | None, progress: Progress | None
) -> Run:
    """As `paceline.open`."""
    readers = engine_for(engine, workers=workers)
    called = parse(source).url if is_remote(source) else None
    if called and readers.far:
        from paceline.run.glance import glance

        seen = glance(called, readers)
        return Run(seen[1].root, store=store, engine=readers, progress=progress, called=called, seen=seen)
    path = localize(source, progress=(lambda now: progress(Reading(now.bytes, now.bytes_total))) if progress else None)
    if readers.far:
        # Workers stand in other directories than the user.
        path, called = path.absolute(), called or str(source)
    return Run(path, store=store, engine=readers, progress=progress, called=called)
