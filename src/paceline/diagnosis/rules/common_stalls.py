"""Steps in which all ranks stand still together: a save, an evaluation. Nobody is at fault, and the time is lost all the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.rule_finding import RuleFinding
from paceline.diagnosis.rules.idle import NOT_LAUNCHING, idle_by_cause
from paceline.diagnosis.rules.one_off import one_off_stall
from paceline.diagnosis.time_pattern import returns_regularly
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
"""What happens in more of the steps than this is usual, unless it returns every so many steps."""
QUIET = 0.25
"""Quantile of a rank's steps that is not disturbed, although up to half of the steps are."""
QUIET_SPREAD = 2.5
"""Of normal values: their deviation over the median distance of the lower half from that quantile."""
EXPLAINED = 0.5
"""More computing, late input and calls that have findings of their own must explain less than this share."""


def common_stalls(context: DiagnosisContext) -> list[RuleFinding]:
    """At most one finding, about all ranks."""
    columns = common_pauses(context)
    if not columns:
        return []
    longer = _beyond_quiet(context.self_time)
    less = np.zeros(longer.shape)
    less[:, columns] = np.maximum(0.0, np.nan_to_num(longer[:, columns]))
    fixed = reduce_self_time(context.replay, context.replay.costs, less)
    lost = float((context.replay.base.step_times - context.replay.run(fixed).step_times).sum()) / 1e6
    rank_rows = list(range(len(longer)))
    return [one_off_stall(context, rank_rows, columns, lost, min_severity="low", fixed=fixed)]


def common_pauses(context: DiagnosisContext) -> list[int]:
    """Columns of the steps in which all ranks pause."""
    steps = context.self_time.shape[1]
    if steps < FEWEST_STEPS or np.isnan(context.self_time).all():
        return []
    columns: list[int] = np.flatnonzero(_paused(context).mean(axis=0) >= MOST_RANKS).tolist()
    # The first recorded step often is: the profiler has just started.
    if columns in ([], [0]):
        return []
    often = len(columns) > max(1, MOST_STEPS * steps)
    return [] if often and not (2 * len(columns) <= steps and returns_regularly(columns, steps)) else columns


def _beyond_quiet(values: Floats) -> Floats:
    """Over the rank's undisturbed steps, ranks × steps."""
    quiet = [np.nanquantile(row, QUIET) if (~np.isnan(row)).any() else np.nan for row in values]
    beyond: Floats = values - np.array(quiet)[:, None]
    return beyond


def _paused(context: DiagnosisContext) -> NDArray[np.bool_]:
    """Ranks × steps that are much longer, for no reason that another rule tells."""
    longer = _beyond_quiet(context.self_time)
    lower = longer <= nan_median(longer)[:, None]
    spread = QUIET_SPREAD * float(np.nanmedian(np.abs(longer[lower])))
    much = max(LONGER * context.step_ms * 1e6, DEVIATIONS * spread)
    calls = idle_calls(context.run, context.performance.steps.tolist())
    explained = idle_by_cause(context, calls, NOT_LAUNCHING)
    for column in ("computing", INPUT_WAIT):
        explained = explained + np.maximum(0.0, _beyond_quiet(np.nan_to_num(context.matrix(column))))
    with np.errstate(invalid="ignore"):
        return np.asarray((longer > much) & (explained < EXPLAINED * longer))
