"""The critical path on the measured clock, drawn over the timeline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosis.context import DiagnosisContext
from paceline.replay.critical_path import TRANSFER, WAIT, WORK, CriticalPath, critical_path
from paceline.web.binary_columns import BinaryColumn, encode

KINDS = (WORK, TRANSFER, WAIT)


def critical_path_columns(context: DiagnosisContext, begin: int) -> bytes:
    """The segments at their measured times, ns since `begin`, as binary columns."""
    path = critical_path(context.replay)
    segments = path.segments
    bounds = _measured(context, path) - begin
    columns: dict[str, BinaryColumn] = {
        "rank": np.array([segment.rank for segment in segments], dtype="<i4"),
        "start": bounds[:-1],
        "duration": np.diff(bounds),
        "kind": np.array([KINDS.index(segment.kind) for segment in segments], dtype="|u1"),
        "last": np.array([segment.last for segment in segments], dtype="<i4"),
        "op": [segment.op for segment in segments],
    }
    return encode(columns, kinds=KINDS, total=path.total)


def _measured(context: DiagnosisContext, path: CriticalPath) -> NDArray[np.float64]:
    """When each segment begins, and the last one ends.

    The replay knows how long segments are, the recording when transfers ended; between these the path is stretched.
    """
    ends = np.cumsum([segment.duration for segment in path.segments])
    bounds = np.concatenate([[0.0], ends])
    rows = [(at, segment.row) for at, segment in enumerate(path.segments) if segment.kind == TRANSFER]
    if not rows:
        return bounds + float(context.timeline.begin.min() if len(context.timeline.begin) else 0)
    replayed = np.array([ends[at] for at, _ in rows])
    events = context.timeline.events
    measured = np.maximum.accumulate(np.array([float(events.end[row]) for _, row in rows]))
    replayed = np.concatenate([[0.0], replayed, [ends[-1]]])
    measured = np.concatenate([[measured[0] - replayed[1]], measured, [measured[-1] + (replayed[-1] - replayed[-2])]])
    placed: NDArray[np.float64] = np.interp(bounds, replayed, measured)
    return placed
