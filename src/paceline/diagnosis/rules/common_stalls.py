"""Steps in which all ranks stand still together: a save, an evaluation. Nobody is at fault, and the time is lost all the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.rule_finding import RuleFinding
from paceline.diagnosis.rules.host import NOT_LAUNCHING
from paceline.diagnosis.rules.idle import idle_by_cause
from paceline.diagnosis.rules.one_off import one_off_stall
from paceline.metrics.idle_causes import idle_calls
from paceline.metrics.peers import nan_median
from paceline.replay.fixes import reduce_self_time

FEWEST_STEPS = 4
"""Steps that show what is usual."""
LONGER = 0.1
"""So much longer, as a share of the step, is a pause, if it lies far outside of how steps vary."""
DEVIATIONS = 10.0
MOST_RANKS = 0.75
"""At least this share of the ranks must pause."""
MOST_STEPS = 1 / 3
"""What happens in more of the steps than this is usual."""
EXPLAINED = 0.5
"""More computing, late input and calls that have findings of their own must explain less than this share."""


def common_stalls(context: DiagnosisContext) -> list[RuleFinding]:
    """At most one finding, about all ranks."""
    longer = _beyond_median(context)
    paused = _paused(context, longer)
    columns = np.flatnonzero(paused.mean(axis=0) >= MOST_RANKS).tolist()
    # The first recorded step often is: the profiler has just started.
    if columns in ([], [0]) or len(columns) > max(1, MOST_STEPS * longer.shape[1]):
        return []
    less = np.zeros(longer.shape)
    less[:, columns] = np.maximum(0.0, np.nan_to_num(longer[:, columns]))
    fixed = reduce_self_time(context.replay, context.replay.costs, less)
    lost = float((context.replay.base.step_times - context.replay.run(fixed).step_times).sum()) / 1e6
    rank_rows = list(range(len(longer)))
    return [one_off_stall(context, rank_rows, columns, lost, min_severity="low", fixed=fixed)]


def _beyond_median(context: DiagnosisContext) -> Floats:
    """Self time over the median of the rank, ns, ranks × steps."""
    return context.self_time - nan_median(context.self_time)[:, None]


def _paused(context: DiagnosisContext, longer: Floats) -> NDArray[np.bool_]:
    """Ranks × steps that are much longer, for no reason that another rule tells."""
    if longer.shape[1] < FEWEST_STEPS or np.isnan(longer).all():
        return np.zeros(longer.shape, dtype=np.bool_)
    spread = 1.4826 * float(np.nanmedian(np.abs(longer)))
    much = max(LONGER * context.step_ms * 1e6, DEVIATIONS * spread)
    calls = idle_calls(context.run, context.performance.steps.tolist())
    explained = idle_by_cause(context, calls, NOT_LAUNCHING)
    for column in ("computing", INPUT_WAIT):
        values = np.nan_to_num(context.matrix(column))
        explained = explained + np.maximum(0.0, values - nan_median(values)[:, None])
    with np.errstate(invalid="ignore"):
        return np.asarray((longer > much) & (explained < EXPLAINED * longer))
