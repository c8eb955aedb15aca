"""Who can be compared with whom, and who stands out.

Ranks are peers when they run the same program: same pipeline stage, same kinds and numbers of collectives. Among peers
the healthy ones are the fast half, because a fault makes a rank slower and never faster: the reference is the median
of the lower half, which holds for two peers, for several culprits, and when half of the peers are slow.

    excess(r, n) = value(r, n) / reference(class of r, n) - 1
    noise        = 1.4826 · MAD of the lower half's excess, over ranks and steps
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.analysis.timeline import Timeline

Floats = NDArray[np.float64]

EFFECT_FLOOR = 0.025
"""Slower than its peers by less than this is not worth anybody's night."""
SIGMAS = 5.0
CHRONIC_SHARE = 0.6
"""A habit shows in at least this share of the steps."""


@dataclass(frozen=True)
class Excess:
    """How much more of something each rank has than its peers; nan where it has none to compare with."""

    classes: tuple[tuple[int, ...], ...]
    """Places of ranks that are peers."""
    relative: Floats
    """ranks × steps."""
    reference: Floats
    """ranks × steps, in the value's own unit."""
    noise: float

    @property
    def usual(self) -> Floats:
        """Median over steps, per rank."""
        return nan_median(self.relative)

    @property
    def threshold(self) -> float:
        return max(EFFECT_FLOOR, SIGMAS * self.noise)

    def habitual(self) -> list[int]:
        """Places of ranks that exceed the threshold usually, worst first."""
        usual = self.usual
        known = np.maximum(1, (~np.isnan(self.relative)).sum(axis=1))
        share = (np.nan_to_num(self.relative) > self.threshold / 2).sum(axis=1) / known
        found = [int(r) for r in np.flatnonzero((usual > self.threshold) & (share >= CHRONIC_SHARE))]
        return sorted(found, key=lambda place: -usual[place])


def peer_classes(line: Timeline, stages: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    """Places of ranks by (stage, program); the program is how many events of which kind a step usually has."""
    events = line.events
    kind = np.unique(events.op.astype(str), return_inverse=True)[1]
    classes: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place in range(len(events.ranks)):
        rows = np.flatnonzero((events.rank == place) & ~line.is_end)
        steps = max(1, len(np.unique(line.step[rows])))
        kinds, counts = np.unique(kind[rows], return_counts=True)
        program = tuple((int(k), round(int(c) / steps)) for k, c in zip(kinds, counts, strict=True))
        classes[int(stages[place]), program].append(place)
    return tuple(tuple(ranks) for ranks in classes.values())


def excess_over_peers(values: Floats, classes: tuple[tuple[int, ...], ...]) -> Excess:
    """Compare a ranks × steps quantity with the reference of each rank's peers."""
    reference = np.full(values.shape, np.nan)
    healthy: list[Floats] = []
    for ranks in classes:
        rows = list(ranks)
        if len(rows) < 2:
            continue
        usual = nan_median(values[rows])
        order = [rows[i] for i in np.argsort(usual) if not np.isnan(usual[i])]
        lower = order[: max(1, (len(order) + 1) // 2)]
        if lower:
            reference[rows] = nan_median(values[lower].T)[None, :]
            healthy.append((values[lower] / reference[lower] - 1).ravel())
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = values / reference - 1
    spread = np.concatenate(healthy) if healthy else np.zeros(0)
    spread = spread[~np.isnan(spread)]
    noise = 1.4826 * float(np.median(np.abs(spread))) if len(spread) else 0.0
    return Excess(classes, relative, reference, noise)


def nan_median(values: Floats) -> Floats:
    """Row medians that stay silent about rows without a value."""
    result = np.full(values.shape[0], np.nan)
    filled = ~np.isnan(values).all(axis=1)
    if filled.any():
        result[filled] = np.nanmedian(values[filled], axis=1)
    return result
