"""`simulate`: run a cluster with faults, and write a directory that looks like a real recording."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.faults import parse_faults, state_with_faults
from paceline.simulate.ground_truth import Truth, truth_of
from paceline.simulate.layouts import LAYOUTS
from paceline.simulate.recording import clock_offsets, record
from paceline.simulate.schedule_engine import SimulatedTimeline, run_schedule

RankProgress = Callable[[int, int], None]  # ranks written, ranks in total


def simulate(
    out: Path,
    spec: ClusterSpec,
    faults: Sequence[str] = (),
    layout: str = "ascend-text",
    *,
    progress: RankProgress | None = None,
) -> Truth:
    """Run the cluster, and write the recordings of its ranks and the ground truth to `out`.

    `out` must not exist or be empty; it is created when everything has been written.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"possible layouts: {', '.join(LAYOUTS)}")
    if spec.experts > 1 and layout != "kineto":
        raise UsageError(
            f"layout {layout} cannot be written for experts: their all_to_all uses every link of a group",
            hint="use the layout kineto, which records no links",
        )
    _check_output(out)
    cluster = Cluster(spec)
    parsed = parse_faults(faults, cluster)
    timeline = run_schedule(cluster, state_with_faults(parsed, cluster))
    truth = truth_of(timeline, parsed, layout)
    unfinished = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
        _write(unfinished, timeline, layout, progress or (lambda done, total: None))
        truth.save(unfinished)
        os.replace(unfinished, out)
    finally:
        # private to this process, and renamed unless something failed
        shutil.rmtree(unfinished, ignore_errors=True)
    return truth


def _check_output(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists and is not empty", hint="choose a new directory")


def _write(out: Path, timeline: SimulatedTimeline, layout: str, progress: RankProgress) -> None:
    writer = LAYOUTS[layout](out, timeline.cluster)
    damage = timeline.state.damage
    offsets = clock_offsets(timeline.cluster, timeline.state).tolist()
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
