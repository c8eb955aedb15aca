"""Find persistently slow ranks in the last steps of a running job.

In a synchronous job all ranks have equal step times, because the others wait for the slowest. Ranks are compared by self
time (step time without waiting in collectives) with their peers; reference, excess and what counts as persistent are
those of metrics/peers.py, so that watch, breakdown and diagnose give the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import Excess, excess_over_peers, nan_median
from paceline.watch.peers import live_peer_groups
from paceline.watch.ranks import Event, FinishedStep, LiveRank

Floats = NDArray[np.float64]

MIN_STEPS = 10
"""No alert before this many steps: a job that has just started is still settling."""
SILENT_SECONDS = 15.0
SILENT_STEPS = 10.0
"""A rank is silent if it wrote nothing for as long as this many median steps, and for SILENT_SECONDS."""
_MS = 1e6
"""ns"""


@dataclass(frozen=True)
class RankView:
    """Medians over the window."""

    rank: int
    host: str
    step: int
    step_ms: float
    self_ms: float
    reference_ms: float
    """Self time of its healthy peers; nan without peers."""
    data_ms: float
    excess: float
    """Over the reference: 0.2 is 20 % more; nan without peers."""
    is_persistent: bool
    silent_s: float
    """0: it still writes."""
    events: tuple[Event, ...]


@dataclass(frozen=True)
class JobView:
    job: str
    world_size: int
    ranks: tuple[RankView, ...]
    """Slowest first."""
    step: int
    step_ms: float
    """Median over the window."""
    last_ms: float
    trend: float
    """Newer half of the known steps compared with the older half: 0.02 is 2 % longer."""
    window: int
    threshold: float
    """From this excess on a rank is slow, given the noise of this job."""
    missing: tuple[int, ...]
    finished: bool

    @property
    def alerts(self) -> tuple[RankView, ...]:
        return tuple(rank for rank in self.ranks if rank.is_persistent)


def view_job(ranks: Mapping[int, LiveRank], *, window: int = 50, now: float | None = None) -> JobView | None:
    """Compare the ranks over the last `window` steps; None: no step has finished yet."""
    now = time.time() if now is None else now
    live = [ranks[rank] for rank in sorted(ranks) if ranks[rank].steps]
    if not live:
        return None
    steps = [rank.measured_steps for rank in live]
    last = int(np.median([finished[-1].step for finished in steps]))
    numbers = range(max(min(finished[0].step for finished in steps), last - window + 1), last + 1)
    duration = _matrix(steps, numbers, "duration")
    self_time, data_wait = _matrix(steps, numbers, "self_time"), _matrix(steps, numbers, "data_wait")
    excess = excess_over_peers(self_time, live_peer_groups(live))
    views = _rank_views(live, excess, duration=duration, data_wait=data_wait, now=now)
    head = live[0].head
    return JobView(
        job=head.job,
        world_size=head.world_size,
        ranks=tuple(sorted(views, key=lambda view: (not view.is_persistent, -np.nan_to_num(view.excess), view.rank))),
        step=last,
        step_ms=_median(duration) / _MS,
        last_ms=_median(duration[:, -1:]) / _MS,
        trend=_trend(steps, last),
        window=len(numbers),
        threshold=excess.threshold,
        missing=tuple(sorted(set(range(head.world_size)) - set(ranks))),
        finished=all(rank.is_closed for rank in ranks.values()),
    )


def _rank_views(
    live: Sequence[LiveRank], excess: Excess, *, duration: Floats, data_wait: Floats, now: float
) -> list[RankView]:
    persistent = set(excess.persistent()) if duration.shape[1] >= MIN_STEPS else set()
    step, data = nan_median(duration), nan_median(data_wait)
    median_step = _median(duration)
    return [
        RankView(
            rank=rank.rank,
            host=rank.head.host or "",
            step=rank.steps[-1].step,
            step_ms=float(step[row]) / _MS,
            self_ms=float(excess.median_value[row]) / _MS,
            reference_ms=float(excess.median_reference[row]) / _MS,
            data_ms=float(data[row]) / _MS,
            excess=float(excess.per_rank[row]),
            is_persistent=row in persistent,
            silent_s=_silence(rank, now, median_step),
            events=tuple(rank.events),
        )
        for row, rank in enumerate(live)
    ]


def _matrix(steps: Sequence[Sequence[FinishedStep]], numbers: range, name: str) -> Floats:
    """ranks × steps; nan where a rank has not finished that step, or its log no longer holds it."""
    values = np.full((len(steps), len(numbers)), np.nan)
    for row, finished in enumerate(steps):
        for step in finished:
            if step.step in numbers:
                values[row, step.step - numbers.start] = getattr(step, name)
    return values


def _silence(rank: LiveRank, now: float, median_step: float) -> float:
    silent = now - rank.last_write
    allowed = max(SILENT_SECONDS, SILENT_STEPS * (0 if np.isnan(median_step) else median_step) / 1e9)
    return silent if silent > allowed and not rank.is_closed else 0.0


def _trend(steps: Sequence[Sequence[FinishedStep]], last: int) -> float:
    """From the slowest rank of each step, which sets the speed of the job."""
    durations: dict[int, int] = {}
    for finished in steps:
        for step in finished:
            if step.step <= last:
                durations[step.step] = max(durations.get(step.step, 0), step.duration)
    ordered = [durations[step] for step in sorted(durations)][1:]
    half = len(ordered) // 2
    if half < MIN_STEPS:
        return 0.0
    return float(np.median(ordered[-half:]) / np.median(ordered[:half]) - 1)


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
