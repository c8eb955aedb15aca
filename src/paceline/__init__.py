"""Paceline finds what slows a training cluster, proves it, and says what fixing it would gain."""

from __future__ import annotations

from paceline.errors import FormatError, PacelineError, UsageError
from paceline.version import __version__

# Training jobs import this module too: nothing is loaded that only a type checker, or a later call, needs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from paceline.advice.finding import Diagnosis
    from paceline.analysis.breakdown import Breakdown
    from paceline.run.index import Progress
    from paceline.run.run import Run

__all__ = ["FormatError", "PacelineError", "UsageError", "__version__", "breakdown", "diagnose", "open"]


def open(
    source: str | Path,
    *,
    store: str | Path | None = None,
    workers: int = 1,
    engine: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Open any cluster profile: a directory (or file), s3://, obs:// or ssh://, in any format Paceline reads.

    >>> run = paceline.open("runs/llama-16")              # doctest: +SKIP
    >>> run.table("steps").df()                           # doctest: +SKIP

    `store` is where the Parquet store goes (default: below ~/.cache/paceline). With `workers` > 1 large sources are
    read by spawned processes; a script that does so needs the usual `if __name__ == "__main__":`. With an `engine`
    (dask://host:8786, ray://host:10001) its workers read, each fetching for itself what it needs of a remote source.
    """
    # Imported here so that `import paceline.profiling` inside a training job does not load DuckDB.
    from paceline.run.opening import open_run

    return open_run(source, store=store, workers=workers, engine=engine, progress=progress)


def diagnose(source: str | Path | Run, *, steps: tuple[int, ...] | None = None) -> Diagnosis:
    """What slows a run, who does, and what mending it would gain; of some steps, or of all.

    >>> first = paceline.diagnose("runs/llama-16").findings[0]      # doctest: +SKIP
    >>> first.id, first.subject.ranks, first.gain.percent           # doctest: +SKIP
    """
    from paceline.advice.engine import diagnose
    from paceline.run.run import Run

    if isinstance(source, Run):
        return diagnose(source, steps=steps)
    with open(source) as run:
        return diagnose(run, steps=steps)


def breakdown(source: str | Path, *, store: str | Path | None = None) -> Breakdown:
    """How each rank spent its steps, and who is slower than its peers: a first look, see analysis/breakdown.py.

    >>> look = paceline.breakdown("traces")               # doctest: +SKIP
    >>> look.parts["exposed"], look.slow                  # doctest: +SKIP
    """
    from paceline.analysis.breakdown import breakdown

    return breakdown(source, store=store)
