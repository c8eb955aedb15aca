"""Steps: which of them count, and where the time of a step goes: parts that add up to its duration.

Per rank and step, everything in ns; computing is forward/backward where a recording knows only phases:

    exposed   ≤ duration, computing ≤ duration - exposed, overlapped ≤ computing, bubble ≤ exposed
    tail      = what comes after backward, where computing itself was not recorded
    unused    = duration - computing - exposed - tail
    twice     = input wait that the recording counts as computing (MindInsight: computing = step - exposed)
    share     = wait share of the rank's collectives in this step, see collectives.waiting_shares

    duration  = compute + overlapped + exposed + waiting + tail + free + data + unknown
    compute   = computing - overlapped - twice
    waiting   = bubble + (exposed as recorded - bubble) · share
    exposed   = exposed as recorded - waiting: communication that nothing covers, while data moves
    data      = input wait
    free      = unused - input wait; nothing where the recording says only how long steps were
    unknown   = unused - input wait there: nobody recorded how the device spent it

The mean of a rank is the mean of each part over the steps that count, so its parts add up too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.table import Source, Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("compute", "overlapped", "exposed", "waiting", "tail", "free", "data", "unknown")
"""Add up to the duration."""
FEWEST_STEPS = 2
"""Fewer steps that all ranks share say less than more that some ranks did not record."""
EMPTY = 0.01
KNOWN = 0.5
"""Share of "unknown" from which on the devices are called unknown."""
NO_STEP = -1
"""Stands for the step of rows that belong to none."""


def steady_steps(steps: Ints, whole: NDArray[np.bool_] | None = None) -> Ints:
    """The steps that count in every mean and comparison, from one entry per rank and recorded step.

    Those that were recorded whole (see `recorded_whole`) by as many ranks as any: where a rank did not record a step, the
    others' waiting for it looks like a slow transfer. All whole steps where fewer than FEWEST_STEPS remain.

    >>> steady_steps(np.array([1, 2, 3, 2, 3])).tolist()
    [2, 3]
    >>> steady_steps(np.array([1, 2, 3]), np.array([False, True, True])).tolist()
    [2, 3]
    """
    if whole is not None and whole.any():
        steps = steps[whole]
    numbers, ranks = np.unique(steps, return_counts=True)
    shared = numbers[ranks == ranks.max(initial=0)]
    return shared if len(shared) >= FEWEST_STEPS else numbers


def step_condition(steps: Sequence[int]) -> str:
    """These steps as an SQL condition on `step`; rows that belong to no step always count. No steps = all rows."""
    return f"(step IS NULL OR step IN ({', '.join(map(str, steps))}))" if len(steps) else "true"


def in_steps(steps: Sequence[int]) -> str:
    """These steps and nothing else, as an SQL condition on `step`."""
    return f"step IN ({', '.join(map(str, steps)) or 'NULL'})"


@dataclass(frozen=True)
class StepRows:
    """The recorded steps of ranks, one row per rank × step; ns, nan where unknown."""

    rank: Ints
    step: Ints
    """NO_STEP where the recording gives no number."""
    duration: Floats
    computing: Floats
    forward_backward: Floats
    overlapped: Floats
    exposed: Floats
    bubble: Floats
    tail: Floats
    data_wait: Floats
    preparing: Floats
    free: Floats


def recorded_whole(rows: StepRows) -> NDArray[np.bool_]:
    """Whether a row is a whole step of training: not empty, and not a first step whose begin the profiler missed.

    empty          shorter than EMPTY of the median step: a marker at the end of the recording
    begin missed   of all its steps, in phases, only a rank's first has no input wait: the recording begins with its first
                   operator, and graphs are compiled and communicators opened in it
    """
    durations = rows.duration[rows.duration > 0]
    whole: NDArray[np.bool_] = rows.duration > EMPTY * (np.median(durations) if len(durations) else 0.0)
    missed = np.isnan(rows.data_wait)
    for rank in np.unique(rows.rank[missed]).tolist():
        mine = np.flatnonzero((rows.rank == rank) & (rows.step != NO_STEP))
        phases = not np.isnan(rows.forward_backward[mine[:1]]).any()
        if len(mine) > 1 and phases and missed[mine[0]] and not missed[mine[1:]].any():
            whole[mine[0]] = False
    return whole


COLUMNS = tuple(name for name in StepRows.__dataclass_fields__ if name not in ("rank", "step"))


def read_steps(run: Source) -> StepRows:
    """All steps of a run that have a duration, by rank and step."""
    columns = run.sql(
        f"""
        SELECT rank, coalesce(step, {NO_STEP}) AS step, {", ".join(COLUMNS)} FROM steps
        WHERE rank IS NOT NULL AND duration IS NOT NULL ORDER BY rank, step
        """
    ).fetchnumpy()
    values = {name: np.ma.filled(np.ma.asarray(columns[name], dtype=np.float64), np.nan) for name in COLUMNS}
    return StepRows(columns["rank"].astype(np.int64), columns["step"].astype(np.int64), **values)


def input_wait(rows: StepRows) -> Floats:
    """As core.schema.INPUT_WAIT: recorded, else the time before the first device work, if the device was idle then."""
    prepared: Floats = np.minimum(rows.preparing, rows.free)  # nan where either is unknown
    known: Floats = np.where(np.isnan(rows.free), rows.preparing, prepared)
    return np.where(np.isnan(rows.data_wait), known, rows.data_wait)


def step_parts(rows: StepRows, waiting_share: Floats | None = None) -> dict[str, Floats]:
    """PARTS of each row, and `bubble`, which is part of waiting; without a share waiting is only the bubble."""
    recorded = np.isnan(rows.computing)
    exposed = np.minimum(np.nan_to_num(rows.exposed), rows.duration)
    left = rows.duration - exposed
    computing = np.minimum(np.nan_to_num(np.where(recorded, rows.forward_backward, rows.computing)), left)
    overlapped = np.minimum(np.nan_to_num(rows.overlapped), computing)
    tail = np.where(recorded, np.clip(np.nan_to_num(rows.tail), 0, left - computing), 0.0)
    unused = left - computing - tail
    data = np.nan_to_num(input_wait(rows))
    idle = np.minimum(data, unused)
    twice = np.minimum(data - idle, computing - overlapped)
    # Nothing is known of how the device spent the step (it was not recorded): that is not called idle.
    unknown = np.isnan(rows.computing) & np.isnan(rows.forward_backward) & np.isnan(rows.exposed) & np.isnan(rows.free)
    untold = np.where(unknown, unused - idle, 0.0)
    bubble = np.minimum(np.nan_to_num(rows.bubble), exposed)
    waiting = bubble + (exposed - bubble) * (0.0 if waiting_share is None else np.nan_to_num(waiting_share))
    return {
        "compute": computing - overlapped - twice,
        "overlapped": overlapped,
        "exposed": exposed - waiting,
        "waiting": waiting,
        "tail": tail,
        "free": unused - idle - untold,
        "data": idle + twice,
        "unknown": untold,
        "bubble": bubble,
    }


def mean_by(key: Ints, values: Mapping[str, Floats]) -> tuple[Ints, dict[str, Floats]]:
    """The distinct keys, and the mean of each column over the rows of each key."""
    keys, place, counts = np.unique(key, return_inverse=True, return_counts=True)
    means = {name: np.bincount(place, weights=column, minlength=len(keys)) / counts for name, column in values.items()}
    return keys, means


def shares_of(breakdown: Table) -> dict[str, float]:
    """Which share of the steps of all ranks goes where: sum(part) / sum(duration); {} where nothing is known."""
    numbers = breakdown.numbers
    whole = float(np.nansum(numbers["duration"]))
    return {part: float(np.nansum(numbers[part])) / whole for part in PARTS} if whole else {}
