"""Who is slow, from what all ranks appended: own work compared with peers, over the last steps.

    own work of a step = step time - standing still in collectives

Whoever is slow works while the others wait for it, so step times are equal everywhere and tell nothing. The comparison
is the diagnosis' own (analysis/peers.py): against the fast half of the peers, beyond noise, in most of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.analysis.peers import excess_over_peers
from paceline.watch.ranks import Event, RankState

Floats = NDArray[np.float64]

FEWEST_STEPS = 10
"""Before as many steps nobody has a habit."""
SILENT_SECONDS = 15.0
SILENT_STEPS = 10.0
"""A rank is silent when it wrote nothing for as long as this many usual steps, and for SILENT_SECONDS."""


@dataclass(frozen=True)
class RankView:
    rank: int
    host: str
    step: int
    step_ms: float
    own_ms: float
    peers_ms: float
    """What its peers take for it, so that it fits the excess: own / (1 + excess)."""
    data_ms: float
    excess: float
    """own / peers - 1, step by step, and of that the median; nan without peers."""
    chronic: bool
    silent_s: float
    """0: it is heard."""
    events: tuple[Event, ...]


@dataclass(frozen=True)
class View:
    job: str
    world_size: int
    ranks: tuple[RankView, ...]
    """Slowest first."""
    step: int
    step_ms: float
    """Median over the window."""
    last_ms: float
    trend: float
    """Newer half of the known steps against the older half: 0.02 = 2 % slower."""
    window: int
    threshold: float
    """From this excess on a rank is slow, in this noise."""
    missing: tuple[int, ...]
    finished: bool

    @property
    def alerts(self) -> tuple[RankView, ...]:
        return tuple(rank for rank in self.ranks if rank.chronic)


def judge(ranks: Mapping[int, RankState], *, window: int = 50, now: float | None = None) -> View | None:
    """None: there is no step yet."""
    now = time.time() if now is None else now
    states = [ranks[rank] for rank in sorted(ranks) if ranks[rank].steps]
    if not states:
        return None
    last = int(np.median([state.steps[-1].step for state in states]))
    numbers = list(range(max(min(state.steps[0].step for state in states), last - window + 1), last + 1))
    own, duration, data = (_matrix(states, numbers, what) for what in ("own", "duration", "data_wait"))
    excess = excess_over_peers(own, _classes(states))
    chronic = set(excess.habitual()) if len(numbers) >= FEWEST_STEPS else set()
    usual = _median(duration)
    views = [
        RankView(
            rank=state.rank, host=state.head.host or "", step=state.steps[-1].step,
            step_ms=_median(duration[place]) / 1e6, own_ms=_median(own[place]) / 1e6,
            peers_ms=_median(own[place]) / 1e6 / (1 + float(excess.usual[place])), data_ms=_median(data[place]) / 1e6,
            excess=float(excess.usual[place]), chronic=place in chronic,
            silent_s=_silence(state, now, usual), events=tuple(state.events),
        )
        for place, state in enumerate(states)
    ]  # fmt: skip
    head = states[0].head
    return View(
        job=head.job, world_size=head.world_size,
        ranks=tuple(sorted(views, key=lambda view: (not view.chronic, -np.nan_to_num(view.excess), view.rank))),
        step=last, step_ms=usual / 1e6, last_ms=_median(duration[:, -1:]) / 1e6, trend=_trend(states, last),
        window=len(numbers), threshold=excess.threshold,
        missing=tuple(sorted(set(range(head.world_size)) - set(ranks))),
        finished=all(state.is_closed for state in ranks.values()),
    )  # fmt: skip


def _matrix(states: list[RankState], numbers: list[int], what: str) -> Floats:
    """ranks × steps; nan where a rank has not (or no longer) that step."""
    places = {number: place for place, number in enumerate(numbers)}
    values = np.full((len(states), len(numbers)), np.nan)
    for row, state in enumerate(states):
        for finished in state.steps:
            if finished.step in places:
                values[row, places[finished.step]] = getattr(finished, what)
    return values


def _classes(states: list[RankState]) -> tuple[tuple[int, ...], ...]:
    """Places of peers: the data-parallel groups where they are known, else everybody."""
    by_peers: dict[tuple[int, ...] | None, list[int]] = {}
    for place, state in enumerate(states):
        by_peers.setdefault(state.peers, []).append(place)
    return tuple(tuple(places) for places in by_peers.values())


def _silence(state: RankState, now: float, usual_ns: float) -> float:
    quiet = now - state.heard
    allowed = max(SILENT_SECONDS, SILENT_STEPS * (0 if np.isnan(usual_ns) else usual_ns) / 1e9)
    return quiet if quiet > allowed and not state.is_closed else 0.0


def _trend(states: list[RankState], last: int) -> float:
    """From the slowest rank of each step: that is what the job advances by."""
    durations: dict[int, int] = {}
    for state in states:
        for finished in state.steps:
            if finished.step <= last:
                durations[finished.step] = max(durations.get(finished.step, 0), finished.duration)
    ordered = [durations[step] for step in sorted(durations)][1:]
    half = len(ordered) // 2
    if half < FEWEST_STEPS:
        return 0.0
    return float(np.median(ordered[-half:]) / np.median(ordered[:half]) - 1)


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
