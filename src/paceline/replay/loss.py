"""Loss accounting: the measured step less the best step of this job, split into parts that add up to it exactly.

Every value is a replay, an array over steps; costs are replaced one after the other, and each part is what that saved:

    unexplained    measured - replay of the measured costs
    faults         Shapley shares of the named faults: each one's saving, averaged over all orders of fixing them
    uneven         every rank's work at each place of the program no more than the median of its peers there
    communication  transfers, as they are once faults are fixed, take no time: what healthy communication exposes
    bubble         ranks wait for nobody: pipelines, and what ranks of different programs wait for each other
    input          steps begin without waiting for input
    host           work is what kernels cover (nothing where kernels were not recorded)
    best           what is left: computing

so measured - best = sum of the parts, step by step. Two faults that mask each other have shares that differ from what
fixing one alone saves (`alone`). More than EVERY_ORDER faults, or graphs too large to be replayed for every set, are fixed in
the order given instead of in all orders: the parts still add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import factorial

import numpy as np

from paceline.replay.fixes import combine_fixes, first_of_step, start_steps_earlier, without_jitter
from paceline.replay.replay import Costs, Floats, Replay

EVERY_ORDER = 4
MOST_EVENTS = 400_000
"""Times number of sets of faults that are replayed: above, one order stands for all."""
PeerClasses = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class LossPart:
    """A part of the loss; ns, one value per step."""

    cause: str
    share: Floats
    alone: Floats | None = None
    """What fixing this alone would save; None where nothing can be fixed alone."""


@dataclass(frozen=True)
class Loss:
    measured: Floats
    best: Floats
    parts: tuple[LossPart, ...]
    """Faults in the order given, then the others in the order of the head of the file, unexplained last."""


def account(replay: Replay, faults: Sequence[tuple[str, Costs]], *, classes: PeerClasses, input_wait: Floats) -> Loss:
    """Split the loss of a run; `faults` are (cause, costs once fixed), `input_wait` is ns, ranks × steps."""
    measured, base = replay.measured.step_times, replay.base.step_times
    shares, fixed = _fault_parts(replay, faults)
    level = base - sum((part.share for part in shares), np.zeros(len(base)))
    parts = list(shares)

    def lower(cause: str, to: Floats) -> None:
        nonlocal level
        parts.append(LossPart(cause, level - to))
        level = to

    even = without_jitter(replay, fixed, classes, quantile=0.5)
    lower("uneven", replay.run(even).step_times)
    moved = even.with_transfer(np.zeros(len(even.transfer)))
    lower("communication", replay.run(moved).step_times)
    lower("bubble", np.minimum(level, _self_times(replay, moved)))
    started = start_steps_earlier(replay, moved, _input_left(replay, fixed, moved, input_wait))
    lower("input", np.minimum(level, _self_times(replay, started)))
    lower("host", np.minimum(level, _self_times(replay, _covered(replay, started))))
    parts.append(LossPart("unexplained", measured - base))
    return Loss(measured, level, tuple(parts))


def shapley(count: int, value: Callable[[frozenset[int]], Floats]) -> list[Floats]:
    """Shares of `count` players in value(nobody) - value(everybody).

    >>> worth = {frozenset(): 10.0, frozenset({0}): 9.0, frozenset({1}): 10.0, frozenset({0, 1}): 4.0}
    >>> [float(share) for share in shapley(2, worth.__getitem__)]
    [3.5, 2.5]
    """
    shares = []
    for player in range(count):
        others = [each for each in range(count) if each != player]
        share = np.zeros(())
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for before in map(frozenset, combinations(others, size)):
                share = share + weight * (value(before) - value(before | {player}))
        shares.append(share)
    return shares


def _fault_parts(replay: Replay, faults: Sequence[tuple[str, Costs]]) -> tuple[list[LossPart], Costs]:
    """Shares of the faults, and the costs with all of them fixed."""
    known: dict[frozenset[int], Floats] = {frozenset(): replay.base.step_times}

    def value(fixed: frozenset[int]) -> Floats:
        if fixed not in known:
            known[fixed] = replay.run(_combined(replay, [faults[each][1] for each in sorted(fixed)])).step_times
        return known[fixed]

    count = len(faults)
    if count <= EVERY_ORDER and len(replay.costs.work) * 2**count <= MOST_EVENTS * 2:
        shares = shapley(count, value)
    else:
        sets = [frozenset(range(size)) for size in range(count + 1)]
        shares = [value(sets[each]) - value(sets[each + 1]) for each in range(count)]
    alone = [known[frozenset()] - value(frozenset({each})) for each in range(count)]
    parts = [LossPart(cause, share, saved) for (cause, _), share, saved in zip(faults, shares, alone, strict=True)]
    return parts, _combined(replay, [costs for _, costs in faults])


def _combined(replay: Replay, fixes: Sequence[Costs]) -> Costs:
    costs = replay.costs
    for fixed in fixes:
        costs = combine_fixes(replay.costs, costs, fixed)
    return costs


def _self_times(replay: Replay, costs: Costs) -> Floats:
    """Mean over the ranks of what each step takes when nobody waits for anybody, per step."""
    line = replay.timeline
    own = np.zeros(len(costs.work))
    work, overlap, anchor = costs.work.tolist(), costs.overlap.tolist(), line.anchor.tolist()
    until = [0.0] * len(work)
    for row, before in enumerate(anchor):  # anchors come before their followers
        until[row] = work[row] + (until[before] + overlap[before] if before >= 0 else 0.0)
    own = np.array(until)
    at_end = np.full(line.known.shape, np.nan)
    rows = np.flatnonzero(line.is_end)
    at_end[line.events.rank[rows], line.step[rows]] = own[rows]
    spent = np.diff(np.concatenate([np.zeros((len(at_end), 1)), at_end], axis=1), axis=1)
    counted = np.maximum(1, (~np.isnan(spent)).sum(axis=0))
    means: Floats = np.nan_to_num(spent).sum(axis=0) / counted
    return means


def _input_left(replay: Replay, fixed: Costs, even: Costs, input_wait: Floats) -> Floats:
    """Input wait less what fixed faults, and making work even, have already taken of it, ranks × steps."""
    if not input_wait.size:
        return input_wait
    unusual = np.maximum(0.0, input_wait - np.median(input_wait))
    by_faults, by_evening = _saved(replay, replay.costs, fixed), _saved(replay, fixed, even)
    left: Floats = np.maximum(0.0, input_wait - by_faults - np.minimum(by_evening, unusual))
    return left


def _saved(replay: Replay, before: Costs, after: Costs) -> Floats:
    """How much sooner steps begin their work, ranks × steps."""
    line, first = replay.timeline, first_of_step(replay)
    saved = np.zeros(line.known.shape)
    np.maximum.at(saved, (line.events.rank[first], line.step[first]), (before.work - after.work)[first])
    return saved


def _covered(replay: Replay, costs: Costs) -> Costs:
    """Work without what no kernel covers."""
    computed = replay.timeline.computed
    if not len(computed):
        return costs
    return replace(costs, work=np.where(computed >= 0, np.minimum(costs.work, computed), costs.work))
