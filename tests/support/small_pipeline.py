"""Operations of the straggler study's names, a few of them, for tests whose answers are worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.metrics.timeline.operation_graph import Operation, Recorded

_COMPUTING = ("forward-compute", "backward-compute", "optimizer", "gc")


def recorded(text: str, start: float, end: float | None = None, **more: Any) -> dict[Operation, Recorded]:
    """`recorded("forward-send 1 @0", 5)`: number 1, stage 0, begun at 5; a message also has `serves`, and `message`."""
    name, number, stage = text.split()
    times = (np.full((1, 1), float(value)) for value in (start, start + 1 if end is None else end))
    return {Operation(name, int(number), int(stage[1:])): Recorded(*times, name not in _COMPUTING, **more)}


def spelled(operation: Operation) -> str:
    return f"{operation.name} {operation.number} @{operation.stage}"
