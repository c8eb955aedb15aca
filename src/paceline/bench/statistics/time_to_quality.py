"""When a training reached its target accuracy, from the evaluations that the workload reports.

evaluations.json    [{"time": "2026-11-17T02:24:27Z", "accuracy": 0.71, "epoch": 3, "samples": 30000}, …]
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from paceline.bench.number_file import LARGEST
from paceline.bench.result import EvaluationPart, RunTimes, parse_iso_time

EVALUATIONS = "evaluations.json"
_MOST = 10_000


def read_evaluations(path: Path) -> tuple[EvaluationPart, ...]:
    """In the order of time; none where the workload wrote none, or something else."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return ()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[EvaluationPart])
    except (msgspec.DecodeError, RecursionError, OSError):
        return ()
    known = [msgspec.structs.replace(each, time=time) for each in found[:_MOST] if (time := parse_iso_time(each.time))]
    return tuple(sorted(known, key=lambda each: datetime.fromisoformat(each.time)))


def time_to_quality(
    evaluations: Sequence[EvaluationPart], target: float | None, accuracy: float | None, times: RunTimes
) -> float | None:
    """Seconds from the start of the training; without evaluations its end counts, if the accuracy was reached there."""
    start = times.proc_start_time
    if target is None or start is None:
        return None
    reached = next((each.time for each in evaluations if each.accuracy >= target), None)
    if reached is None and not evaluations and accuracy is not None and accuracy >= target:
        reached = times.proc_end_time
    if reached is None:
        return None
    return (datetime.fromisoformat(reached) - datetime.fromisoformat(start)).total_seconds()
