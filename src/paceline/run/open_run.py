"""Open any source, local or remote, as a Run."""

from __future__ import annotations

from pathlib import Path

from paceline.formats.file_selection import needed_for_diagnosis
from paceline.run.executors.open_executor import executor_for
from paceline.run.ingest import OnReadProgress, ReadProgress
from paceline.run.run import Run
from paceline.storage.fetch_source import fetch_source
from paceline.storage.url import is_remote, parse_url


def open_run(
    source: str | Path, *, store: str | Path | None, workers: int, engine: str | None, progress: OnReadProgress | None
) -> Run:
    """As `paceline.open`."""
    executor = executor_for(engine, workers=workers)
    name = parse_url(source).text if is_remote(source) else None
    if name and executor.is_remote:
        from paceline.run.remote_scan import scan_remote

        scanned = scan_remote(name, executor)
        return Run(scanned[1].root, store=store, executor=executor, progress=progress, name=name, scanned=scanned)
    path = fetch_source(
        source,
        needed=needed_for_diagnosis,
        progress=(lambda now: progress(ReadProgress(now.bytes, now.bytes_total))) if progress else None,
    )
    if executor.is_remote:
        # Workers have other working directories.
        path, name = path.absolute(), name or str(source)
    return Run(path, store=store, executor=executor, progress=progress, name=name)
