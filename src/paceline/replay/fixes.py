"""Fixes for the what-if replay: each takes the measured costs and returns what they would be without a fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import COMPUTING
from paceline.metrics.peers import Excess, nan_median
from paceline.replay.replay import Costs, Replay

Floats = NDArray[np.float64]


def scale_self_time(replay: Replay, costs: Costs, factors: Floats) -> Costs:
    """Multiply each rank's self time in each step: factors is ranks × steps, 1 = as measured."""
    line = replay.timeline
    factor = np.nan_to_num(factors, nan=1.0)[line.events.rank, line.step]
    return replace(costs, work=costs.work * factor, overlap=costs.overlap * factor)


def at_peer_speed(
    replay: Replay, costs: Costs, places: Iterable[int], excess: Excess, *, steps: Iterable[int] | None = None
) -> Costs:
    """These ranks as fast as their peers, in all steps or some.

    Work at each place of the program becomes what healthy peers need there (their median in that step), so that a fault
    that only strikes in backward is only fixed there; the sum is then brought to 1 / (1 + excess) of the measured.
    """
    line = replay.timeline
    chosen = None if steps is None else set(steps)
    work, overlap = costs.work.copy(), costs.overlap.copy()
    slow = set(places)
    for ranks in excess.groups:
        healthy = [rank for rank in ranks if rank not in slow]
        for place in slow.intersection(ranks):
            rows = np.flatnonzero(line.events.rank == place)
            if chosen is not None:
                rows = rows[np.isin(line.step[rows], list(chosen))]
            typical = _typical_work(replay, costs, healthy, rows)
            work[rows] = np.minimum(work[rows], np.where(np.isnan(typical), work[rows], typical))
            _match_total(replay, costs, place, rows, work, overlap, excess)
    return replace(costs, work=work, overlap=overlap)


def _typical_work(replay: Replay, costs: Costs, healthy: list[int], rows: NDArray[np.int64]) -> Floats:
    """Median work of healthy peers at the same place of the same step; nan where none has been there."""
    line = replay.timeline
    if not healthy:
        return np.full(len(rows), np.nan)
    others = np.flatnonzero(np.isin(line.events.rank, healthy))
    width = int(line.place.max()) + 1
    keys = line.step[others] * width + line.place[others]
    order = np.lexsort((costs.work[others], keys))
    known, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    sorted_work = costs.work[others[order]]
    medians = (sorted_work[first + (counts - 1) // 2] + sorted_work[first + counts // 2]) / 2
    wanted = line.step[rows] * width + line.place[rows]
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[found] == wanted, medians[found], np.nan)


def _match_total(
    replay: Replay, costs: Costs, place: int, rows: NDArray[np.int64], work: Floats, overlap: Floats, excess: Excess
) -> None:
    """Where places could not be compared, scale what is left so that the step's self time fits."""
    line = replay.timeline
    self_time = line.self_time()[place]
    main = rows[~line.side_stream[rows]]
    for column in np.unique(line.step[rows]):
        inside = main[line.step[main] == column]
        saved = float((costs.work[inside] - work[inside]).sum())
        wanted = self_time[column] * (1 - 1 / (1 + max(0.0, float(np.nan_to_num(excess.relative[place, column])))))
        if saved < 0.7 * wanted:
            factor = max(0.05, 1 - (wanted - saved) / (self_time[column] - saved))
            everything = rows[line.step[rows] == column]
            work[everything] *= factor
            overlap[everything] *= factor


def without_jitter(replay: Replay, costs: Costs, classes: Iterable[tuple[int, ...]], *, quantile: float) -> Costs:
    """All ranks need at each place of the program the given quantile of what their peers need there."""
    line = replay.timeline
    work, overlap = costs.work.copy(), costs.overlap.copy()
    for ranks in classes:
        rows = np.flatnonzero(np.isin(line.events.rank, ranks))
        if not len(rows):
            continue  # ranks of which only durations were recorded
        for values in (work, overlap):
            values[rows] = np.minimum(values[rows], _quantile_at_place(line.place[rows], values[rows], quantile))
    return replace(costs, work=work, overlap=overlap)


def _quantile_at_place(place: NDArray[np.int64], values: Floats, quantile: float) -> Floats:
    """Of each value: the quantile of all values at its place, interpolated linearly between the two nearest."""
    order = np.lexsort((values, place))
    _, first, row, counts = np.unique(place[order], return_index=True, return_inverse=True, return_counts=True)
    position = quantile * (counts - 1)
    below = np.floor(position).astype(np.int64)
    ordered = values[order]
    low, high = ordered[first + below], ordered[first + np.minimum(below + 1, counts - 1)]
    result = np.empty(len(values))
    result[order] = (low + (high - low) * (position - below))[row]
    return result


def combine_fixes(base: Costs, one: Costs, other: Costs) -> Costs:
    """Two faults fixed at once: what each of them leaves of the measured costs, multiplied."""

    def both(measured: Floats, first: Floats, second: Floats) -> Floats:
        result: Floats = np.divide(first * second, measured, out=np.zeros_like(measured), where=measured > 0)
        return result

    return Costs(
        work=both(base.work, one.work, other.work),
        transfer=both(base.transfer, one.transfer, other.transfer),
        overlap=both(base.overlap, one.overlap, other.overlap),
    )


def with_equal_work(replay: Replay, costs: Costs, classes: Iterable[tuple[int, ...]]) -> Costs:
    """The work of each place of the program shared evenly among peers: each has the mean of that step there.

    Where computing was recorded by name, micro-batches are made alike too: samples can be redistributed among them.
    """
    line = replay.timeline
    work, overlap = costs.work.copy(), costs.overlap.copy()
    kind = _kinds(replay)
    width = int(kind.max(initial=0)) + 1
    for ranks in classes:
        rows = np.flatnonzero(np.isin(line.events.rank, ranks))
        _, place = np.unique(line.step[rows] * width + kind[rows], return_inverse=True)
        counts = np.bincount(place)
        for values in (work, overlap):
            values[rows] = (np.bincount(place, values[rows]) / counts)[place]
    return replace(costs, work=work, overlap=overlap)


def _kinds(replay: Replay) -> NDArray[np.int64]:
    """Places of the program; computing of one name is of one kind."""
    line = replay.timeline
    computing = np.flatnonzero(line.events.group_key == COMPUTING)
    kinds: NDArray[np.int64] = line.place.copy()
    _, first, name = np.unique(line.events.op[computing].astype(str), return_index=True, return_inverse=True)
    kinds[computing] = line.place[computing[first]][name]
    return kinds


def balance_stages(replay: Replay, costs: Costs, groups: Iterable[tuple[int, ...]]) -> Costs:
    """Every group of ranks (stages) with the same self time: the mean of the stages, step by step.

    Where computing was recorded by name, each of its kinds is dealt evenly: a layer that moves takes its forward and its
    backward along, and a stage with an even sum but long forwards still holds up the others.
    """
    stages = [list(group) for group in groups]
    named = computing_by_name(replay, costs, stages)
    if named.any():
        return scale_computing(replay, costs, stages, _ratios(named.mean(axis=0)[None], named))
    self_time = replay.timeline.self_time()
    means = np.array([nan_median(self_time[stage].T) for stage in stages])
    factors = np.ones(self_time.shape)
    for stage, mean in zip(stages, means, strict=True):
        factors[stage] = means.mean(axis=0) / mean
    return scale_self_time(replay, costs, factors)


def lighten_stages(replay: Replay, costs: Costs, groups: Sequence[tuple[int, ...]], heavy: Iterable[int]) -> Costs:
    """The heavy ones of these stages compute as long as the median of the others, name by name; as it is without names."""
    stages, chosen = [list(group) for group in groups], sorted(heavy)
    named = computing_by_name(replay, costs, stages)
    others = [place for place in range(len(stages)) if place not in chosen]
    factors = np.ones(named.shape)
    factors[chosen] = _ratios(np.median(named[others], axis=0)[None], named[chosen])
    return scale_computing(replay, costs, stages, factors)


def computing_by_name(replay: Replay, costs: Costs, stages: Sequence[Sequence[int]]) -> Floats:
    """ns that the median rank of each stage computes under each name; stages × steps × names that all stages have."""
    line = replay.timeline
    computing, name, names = _named_computing(replay)
    times = np.zeros((len(line.known), len(line.steps), names))
    np.add.at(times, (line.events.rank[computing], line.step[computing], name), costs.overlap[computing])
    of_stages = np.array([np.median(times[list(stage)], axis=0) for stage in stages])
    everywhere: Floats = of_stages * (of_stages > 0).all(axis=(0, 1))
    return everywhere


def scale_computing(replay: Replay, costs: Costs, stages: Sequence[Sequence[int]], factors: Floats) -> Costs:
    """Multiply computing by stage, step and name, as `computing_by_name` orders them."""
    line, overlap = replay.timeline, costs.overlap.copy()
    computing, name, names = _named_computing(replay)
    of_ranks = np.ones((len(line.known), len(line.steps), names))
    for stage, factor in zip(stages, factors, strict=True):
        of_ranks[list(stage)] = factor
    overlap[computing] *= of_ranks[line.events.rank[computing], line.step[computing], name]
    return replace(costs, overlap=overlap)


def _named_computing(replay: Replay) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows of computing, the number of the name of each, and how many names there are."""
    events = replay.timeline.events
    computing = np.flatnonzero(events.group_key == COMPUTING)
    names, name = np.unique(events.op[computing].astype(str), return_inverse=True)
    return computing, name.astype(np.int64), len(names)


def _ratios(wanted: Floats, now: Floats) -> Floats:
    """wanted / now, 1 where there is nothing now."""
    result: Floats = np.divide(wanted, now, out=np.ones(now.shape), where=now > 0)
    return result


def reduce_self_time(replay: Replay, costs: Costs, less: Floats) -> Costs:
    """Self time shorter by so many ns per rank and step, wherever it is spent."""
    self_time = replay.timeline.self_time()
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = np.clip(1 - np.nan_to_num(less) / self_time, 0.0, 1.0)
    return scale_self_time(replay, costs, factors)


def start_steps_earlier(replay: Replay, costs: Costs, less: Floats) -> Costs:
    """Steps that begin sooner: the work before each rank's first event of a step shorter by so many ns."""
    line, first = replay.timeline, first_of_step(replay)
    work = costs.work.copy()
    work[first] = np.maximum(0, work[first] - np.nan_to_num(less)[line.events.rank[first], line.step[first]])
    return replace(costs, work=work)


def first_of_step(replay: Replay) -> NDArray[np.bool_]:
    """Events whose work counts from the begin of their step: everything anchored before the step's first event."""
    line = replay.timeline
    begins = np.zeros((len(line.known), len(line.steps) + 1), dtype=np.bool_)
    begins[:, 0] = True
    ends = np.flatnonzero(line.is_end)
    begins[line.events.rank[ends], line.step[ends] + 1] = True
    first: NDArray[np.bool_] = (line.anchor < 0) | line.is_end[line.anchor]
    first &= begins[line.events.rank, line.step]
    return first


def scale_transfers(costs: Costs, instances: NDArray[np.int64], factor: float | Floats) -> Costs:
    """These collectives move their data in `factor` of the time."""
    transfer = costs.transfer.copy()
    transfer[instances] = transfer[instances] * factor
    return replace(costs, transfer=transfer)
