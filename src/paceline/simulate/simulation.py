"""From a specification and some faults to a directory that looks like a real recording."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.errors import UsageError
from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.engine import Timeline, run
from paceline.simulate.faults import conditions_under, parse_faults
from paceline.simulate.layouts import LAYOUTS
from paceline.simulate.recording import clock_offsets, record
from paceline.simulate.truth import Truth, truth_of

Progress = Callable[[int, int], None]  # ranks written, ranks in all


def simulate(
    out: Path, spec: ClusterSpec, faults: Sequence[str] = (), layout: str = "ascend-text", *,
    progress: Progress | None = None,
) -> Truth:  # fmt: skip
    """Runs the cluster, writes what its ranks would have recorded to `out`, and the truth beside it.

    `out` must not exist or be empty; it appears only when everything is written.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"possible layouts: {', '.join(LAYOUTS)}")
    _refuse_to_overwrite(out)
    cluster = Cluster(spec)
    parsed = parse_faults(faults, cluster)
    timeline = run(cluster, conditions_under(parsed, cluster))
    truth = truth_of(timeline, parsed, layout)
    unfinished = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
        _write(unfinished, timeline, layout, progress or (lambda done, total: None))
        truth.save(unfinished)
        os.replace(unfinished, out)
    finally:
        # ours alone, and gone already unless something failed
        shutil.rmtree(unfinished, ignore_errors=True)
    return truth


def _refuse_to_overwrite(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists and is not empty", hint="choose a new directory")


def _write(out: Path, timeline: Timeline, layout: str, progress: Progress) -> None:
    writer = LAYOUTS[layout](out, timeline.cluster)
    damage = timeline.conditions.damage
    offsets = clock_offsets(timeline.cluster, timeline.conditions).tolist()
    for rank, offset in enumerate(offsets):
        if rank not in damage.missing_ranks:
            recording = record(timeline, rank, offset)
            if rank in damage.missing_steps:
                recording = recording.without_step(damage.missing_steps[rank])
            path = writer.write(recording)
            if rank in damage.truncated_ranks:
                os.truncate(path, path.stat().st_size * 6 // 10)
        progress(rank + 1, len(offsets))
    writer.finish()
