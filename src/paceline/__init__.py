"""Paceline finds what slows a training cluster, proves it, and says what fixing it would gain."""

from __future__ import annotations

from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.version import __version__

# Training jobs import this module too: nothing is loaded that only a type checker, or a later call, needs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from paceline.core.i18n import Language
    from paceline.diagnosis.finding import Diagnosis, Finding
    from paceline.metrics.breakdown import Breakdown
    from paceline.run.ingest import OnReadProgress
    from paceline.run.run import Run

__all__ = [
    "Diagnosis",
    "Finding",
    "FormatError",
    "PacelineError",
    "Run",
    "UsageError",
    "__version__",
    "breakdown",
    "diagnose",
    "open",
]
_LAZY = {
    "Diagnosis": "paceline.diagnosis.finding",
    "Finding": "paceline.diagnosis.finding",
    "Run": "paceline.run.run",
}
"""Public classes that are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    from importlib import import_module

    from paceline.core.analysis import require_analysis

    require_analysis()
    return getattr(import_module(_LAZY[name]), name)


def open(
    source: str | Path,
    *,
    store: str | Path | None = None,
    workers: int = 1,
    engine: str | None = None,
    progress: OnReadProgress | None = None,
) -> Run:
    """Open any cluster profile: a directory (or file), s3://, obs:// or ssh://, in any format Paceline reads.

    >>> run = paceline.open("runs/llama-16")              # doctest: +SKIP
    >>> run.table("steps").df()                           # doctest: +SKIP

    `store` is where the Parquet store goes (default: below ~/.cache/paceline). With `workers` > 1 large sources are
    read by spawned processes; a script that does so needs `if __name__ == "__main__":`. With an `engine`
    (dask://host:8786, ray://host:10001) its workers read, each fetching for itself what it needs of a remote source.
    """
    # Imported here so that `import paceline.profiling` inside a training job does not load DuckDB.
    from paceline.core.analysis import require_analysis

    require_analysis()
    from paceline.run.open_run import open_run

    return open_run(source, store=store, workers=workers, engine=engine, progress=progress)


def diagnose(source: str | Path | Run, *, steps: tuple[int, ...] | None = None, language: Language = "en") -> Diagnosis:
    """What slows a run, who is at fault, and what fixing it would gain; over some steps, or over all.

    >>> first = paceline.diagnose("runs/llama-16").findings[0]                # doctest: +SKIP
    >>> first.id, first.subject.ranks, first.gain.percent, first.title        # doctest: +SKIP
    """
    from paceline.core.analysis import require_analysis

    require_analysis()
    from paceline.diagnosis.diagnose import diagnose
    from paceline.run.run import Run

    if isinstance(source, Run):
        return diagnose(source, steps=steps, language=language)
    with open(source) as run:
        return diagnose(run, steps=steps, language=language)


def breakdown(source: str | Path, *, store: str | Path | None = None) -> Breakdown:
    """How each rank spent its steps, and who is slower than its peers: a first look, see metrics/breakdown.py.

    >>> look = paceline.breakdown("traces")               # doctest: +SKIP
    >>> look.parts["communication"], look.slow            # doctest: +SKIP
    """
    from paceline.core.analysis import require_analysis

    require_analysis()
    from paceline.metrics.breakdown import breakdown

    return breakdown(source, store=store)
