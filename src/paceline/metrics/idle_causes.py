"""Why a device was idle, by the call of its runtime that the host was in meanwhile.

memory      the call allocates or frees memory
blocking    the call copies or waits, and so holds the host up
start       any other call that lasts LOADING or longer, in the first step that has it: the runtime starts, or loads code that is
            used for the first time
launching   every other call: the host does launch, only too slowly

mean time of a call = Σ time / Σ calls of that name inside that operator and function, over all steps
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.steps import in_steps
from paceline.metrics.table import RunTables

Floats = NDArray[np.float64]
IdleCause = Literal["memory", "blocking", "start", "launching"]

LOADING = 1e6
"""ns. A launch or a query takes some µs; a thousand times that, with an idle device, is no launching."""
_MEMORY = re.compile(
    r"malloc|free|hostalloc|hostregister|hostunregister|mem(create|release|map|unmap|address)|mempool", re.I
)
_BLOCKING = re.compile(r"synchronize|memcpy|memset", re.I)
_ASYNCHRONOUS = re.compile(r"async", re.I)


@dataclass(frozen=True)
class IdleCall:
    """Calls of one name at one place of the program, by one rank in one step."""

    rank: int
    step: int
    name: str
    operator: str | None
    code: str | None
    time: float
    """ns in which the device was idle."""
    cause: IdleCause


def cause_of(name: str, mean_time: float, *, first: bool = True) -> IdleCause:
    """Of a call of this name that lasts so many ns; `first`: in the first step with such a call at this place.

    >>> cause_of("cudaMalloc", 4e3), cause_of("hipMemcpyWithStream", 4e8), cause_of("cudaMemcpyAsync", 9e3)
    ('memory', 'blocking', 'launching')
    >>> cause_of("cudaMemcpyAsync", 4e6), cause_of("cudaLaunchKernel", 6e6), cause_of("cudaLaunchKernel", 6e3)
    ('blocking', 'start', 'launching')
    >>> cause_of("cudaLaunchKernel", 6e6, first=False)  # loaded long ago
    'launching'
    """
    if _MEMORY.search(name):
        return "memory"
    if _BLOCKING.search(name) and (mean_time >= LOADING or not _ASYNCHRONOUS.search(name)):
        return "blocking"
    return "start" if mean_time >= LOADING and first else "launching"


def idle_calls(run: RunTables, steps: list[int]) -> list[IdleCall]:
    """What the host did while devices were idle in these steps."""
    run.load(["idle_calls"])
    rows = run.sql(
        f"""
        SELECT rank, step, name, operator, code, time,
               sum(time) OVER place / greatest(1, sum(count) OVER place) AS mean_time, step = min(step) OVER place AS first
        FROM idle_calls WHERE rank IS NOT NULL AND {in_steps(steps)}
        WINDOW place AS (PARTITION BY rank, name, operator, code)
        ORDER BY time DESC, rank, step, name
        """
    ).fetchall()
    return [
        IdleCall(rank, step, name, operator, code, float(time), cause_of(name, float(mean_time), first=first))
        for rank, step, name, operator, code, time, mean_time, first in rows
    ]
