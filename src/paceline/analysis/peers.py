"""Who can be compared with whom, and who stands out.

Ranks are peers when they run the same program: same pipeline stage, same kinds and numbers of collectives. Among peers
the healthy ones are the fast half, because a fault makes a rank slower and never faster: the reference is the median
of the lower half, which holds for two peers, for several culprits, and when half of the peers are slow.

    excess(r, n) = value(r, n) / reference(class of r, n) - 1
    noise        = 1.4826 · MAD over ranks and steps of the lower half's excess, or, if that is more (it is 0 for two
                   peers), of how far each rank's value / reference strays from its own median, as a share of it
    chance(r)    = 2 · peers · min over two sets of h others (the lower half; all) of
                   P(Binomial(steps, 1 / (h + 1)) ≥ steps in which r is slower than all of the set)

On machines so noisy that no single step proves anything, a habit still shows: without one, all would take turns in being
the slowest, and `chance` says how likely it would be that one of them lost so often.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from paceline.analysis.timeline import Timeline

Floats = NDArray[np.float64]

EFFECT_FLOOR = 0.025
"""Slower than its peers by less than this is not worth anybody's night."""
SIGMAS = 5.0
CHRONIC_SHARE = 0.6
"""A habit shows in at least this share of the steps."""
FASTER_SHARE = 0.1
UNLIKELY = 1e-3
"""A rank that is slowest so often that chance would do it more rarely than this has a habit."""
BETWEEN_SIGMAS = 3.0


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
    between: float
    """1.4826 · MAD of what healthy ranks usually have more or less than their reference."""
    chance: Floats
    """Per rank, see above."""

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
        # Who is clearly faster than its peers in some steps is dealt different work, not slow.
        faster = (np.nan_to_num(self.relative) < -self.threshold).sum(axis=1) / known
        clear = (usual > self.threshold) & (share >= CHRONIC_SHARE) & (faster <= FASTER_SHARE)
        stubborn = (usual > max(EFFECT_FLOOR, BETWEEN_SIGMAS * self.between)) & (self.chance < UNLIKELY)
        found = [int(r) for r in np.flatnonzero(clear | stubborn)]
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
    chance = np.ones(len(values))
    healthy: list[Floats] = []
    swings: list[Floats] = []
    for ranks in classes:
        rows = list(ranks)
        if len(rows) < 2:
            continue
        usual = nan_median(values[rows])
        order = [rows[i] for i in np.argsort(usual) if not np.isnan(usual[i])]
        lower = order[: max(1, (len(order) + 1) // 2)]
        if lower:
            reference[rows] = nan_median(values[lower].T)[None, :]
            healthy.append(values[lower] / reference[lower] - 1)
            chance[rows] = _chances(values[rows], values[lower])
            swings.append(_swing(values, reference, [row for row in rows if lower != [row]]))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = values / reference - 1
    noise = max(_deviation([ranks.ravel() for ranks in healthy]), _deviation(swings))
    between = _deviation([nan_median(ranks) for ranks in healthy])
    return Excess(classes, relative, reference, noise, between, chance)


def _swing(values: Floats, reference: Floats, rows: list[int]) -> Floats:
    """How far from its usual distance to the reference each of these ranks is, step by step; noise multiplies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = values[rows] / reference[rows]
        swing: Floats = (ratio / nan_median(ratio)[:, None] - 1).ravel()
    return swing


def _chances(values: Floats, healthy: Floats) -> Floats:
    """How likely one of these ranks would lose against the others as often as each of them did."""
    ranks = range(len(values))
    fewer = [_chance_of_losing(values[rank], healthy) for rank in ranks]  # shows several culprits
    all_others = [
        _chance_of_losing(values[rank], np.delete(values, rank, axis=0)) for rank in ranks
    ]  # needs fewer steps
    chances: Floats = np.minimum(1.0, 2 * len(values) * np.minimum(fewer, all_others))
    return chances


def _chance_of_losing(mine: Floats, others: Floats) -> float:
    known = ~np.isnan(mine) & ~np.isnan(others).any(axis=0)
    lost = int((mine[known] > others[:, known].max(axis=0)).sum())
    return _binomial_tail(int(known.sum()), lost, 1 / (len(others) + 1))


def _binomial_tail(trials: int, least: int, odds: float) -> float:
    """
    >>> _binomial_tail(3, 2, 0.5)
    0.5
    """
    return sum(math.comb(trials, n) * odds**n * (1 - odds) ** (trials - n) for n in range(least, trials + 1))


def _deviation(values: list[Floats]) -> float:
    """Standard deviation around 0, unmoved by outliers."""
    joined = np.concatenate(values) if values else np.zeros(0)
    known = joined[~np.isnan(joined)]
    return 1.4826 * float(np.median(np.abs(known))) if len(known) else 0.0


def nan_median(values: Floats) -> Floats:
    """Row medians that stay silent about rows without a value."""
    result = np.full(values.shape[0], np.nan)
    filled = ~np.isnan(values).all(axis=1)
    if filled.any():
        result[filled] = np.nanmedian(values[filled], axis=1)
    return result
