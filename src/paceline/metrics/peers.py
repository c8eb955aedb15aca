"""Peer groups, reference and excess: who is compared with whom, and who stands out.

Ranks are peers when they run the same program: same pipeline stage, same kinds and numbers of collectives per step. Among
peers the healthy ones are the fast half, because a fault makes a rank slower and never faster: the reference is the median
of the lower half, which holds for two peers, for several culprits, and when half of the peers are slow.

    reference(r, n) = median over the fast half of r's peers of value(·, n)
    excess(r, n)    = value(r, n) / reference(r, n) - 1

and of a rank, over the steps n in which it has a value; so everybody who divides the first two numbers gets the third:

    value(r)        = median over n of value(r, n)
    reference(r)    = median over n of reference(r, n)
    excess(r)       = value(r) / reference(r) - 1

    noise           = 1.4826 · MAD over ranks and steps of the fast half's excess, or, if that is more (it is 0 for two
                      peers), of how far each rank's value / reference strays from its own median, as a share of it
    chance(r)       = 2 · peers · min over two sets of h others (the fast half; all) of
                      P(Binomial(steps, 1 / (h + 1)) ≥ steps in which r is slower than all of the set)

On machines so noisy that no single step proves anything, a persistent excess still shows: without one, all would take
turns in being the slowest, and `chance` says how likely it would be that one of them lost so often. Where operators of
the host were recorded they say it better (metrics/undisturbed.py): neighbours that stop a rank all the time, too, are not the
rank's own excess.

Below EFFECT_FLOOR cards may differ by nature, for ever. There a rank is slow if it stands apart from how its peers differ
(metrics/outliers.py), which needs eight of the run or so, and was the slowest in more steps than `chance` explains.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.outliers import high_outliers

Floats = NDArray[np.float64]
PeerGroups = tuple[tuple[int, ...], ...]
"""Rows of ranks that are peers of each other."""

EFFECT_FLOOR = 0.025
"""The smallest excess that is reported of a rank that does not stand apart from how its peers differ."""
LEAST_EFFECT = 0.01
"""The smallest excess that is worth a word, however sure it is."""
SIGMAS = 5.0
PERSISTENT_SHARE = 0.6
"""A persistent excess shows in at least this share of the steps."""
FASTER_SHARE = 0.1
UNLIKELY = 1e-3
"""A rank that is slowest so often that chance would do it more rarely than this is persistently slow."""
BETWEEN_SIGMAS = 3.0
CHANCE_APART = 0.05
"""How often chance may make a healthy rank of the run stand apart."""
UNDISTURBED_FLOOR = 0.1
"""Exceeding its peers' undisturbed time by this in both halves of the steps, a rank is slow by itself."""
FEWEST_APART = 3
"""Of two peers it is not known which is the exception."""


@dataclass(frozen=True)
class Excess:
    """How much more of something each rank has than its peers; nan where it has none to compare with."""

    groups: PeerGroups
    values: Floats
    """ranks × steps."""
    reference: Floats
    """ranks × steps, in the unit of the values."""
    noise: float
    between: float
    """1.4826 · MAD of what healthy ranks persistently have more or less than their reference."""
    chance: Floats
    """Per rank, see above."""
    undisturbed: Floats | None = None
    """Per rank, how much more it takes undisturbed than its peers, in the half of the steps in which that is less."""

    @cached_property
    def relative(self) -> Floats:
        """ranks × steps: excess(r, n)."""
        return _relative(self.values, self.reference)

    @cached_property
    def median_value(self) -> Floats:
        """value(r)."""
        return nan_median(self.values)

    @cached_property
    def median_reference(self) -> Floats:
        """reference(r)."""
        return _median_reference(self.values, self.reference)

    @cached_property
    def per_rank(self) -> Floats:
        """excess(r)."""
        return _relative(self.median_value, self.median_reference)

    @cached_property
    def apart(self) -> NDArray[np.bool_]:
        """Per rank: it differs from its peers more than the ranks of the run do from theirs.

        How unlike cards are is a matter of the machine: groups that are too small to show it learn it from each other.
        """
        excess, apart = self.per_rank, np.zeros(len(self.values), dtype=np.bool_)
        groups = [rows for group in self.groups if len(rows := _known(excess, group)) >= FEWEST_APART]
        if groups:
            from_middle = np.concatenate([excess[rows] - np.median(excess[rows]) for rows in groups])
            apart[np.concatenate(groups)[high_outliers(from_middle, CHANCE_APART, len(groups))]] = True
        return apart

    @property
    def threshold(self) -> float:
        return max(EFFECT_FLOOR, SIGMAS * self.noise)

    @cached_property
    def _clear(self) -> NDArray[np.bool_]:
        known = np.maximum(1, (~np.isnan(self.relative)).sum(axis=1))
        share = (np.nan_to_num(self.relative) > self.threshold / 2).sum(axis=1) / known
        # A rank that is clearly faster than its peers in some steps is given different work, it is not slow.
        faster = (np.nan_to_num(self.relative) < -self.threshold).sum(axis=1) / known
        clear: NDArray[np.bool_] = self.per_rank > self.threshold
        clear &= (share >= PERSISTENT_SHARE) & (faster <= FASTER_SHARE)
        return clear

    @cached_property
    def _often(self) -> NDArray[np.bool_]:
        often: NDArray[np.bool_] = self.per_rank > max(EFFECT_FLOOR, BETWEEN_SIGMAS * self.between)
        return often & self._not_by_chance

    @cached_property
    def _by_itself(self) -> NDArray[np.bool_]:
        slow: NDArray[np.bool_] = np.nan_to_num(self._undisturbed) > UNDISTURBED_FLOOR
        return slow & (self.per_rank > EFFECT_FLOOR)

    @property
    def _not_by_chance(self) -> NDArray[np.bool_]:
        """The slowest more often than chance explains, and no neighbour that stops it explains it."""
        undisturbed = np.isnan(self._undisturbed)
        unlikely: NDArray[np.bool_] = (self.chance < UNLIKELY) & (undisturbed | self._by_itself)
        return unlikely

    @property
    def _undisturbed(self) -> Floats:
        return np.full(len(self.values), np.nan) if self.undisturbed is None else self.undisturbed

    @property
    def is_doubtful(self) -> bool:
        """Whether a rank is slower than its peers, and by more than noise explains in no step."""
        return bool(((self.per_rank > EFFECT_FLOOR) & ~self._clear).any())

    def persistent(self) -> list[int]:
        """Rows of ranks that exceed the threshold persistently, worst first."""
        excess = self.per_rank
        apart = (excess > LEAST_EFFECT) & self.apart & self._not_by_chance
        found = [int(row) for row in np.flatnonzero(self._clear | self._by_itself | self._often | apart)]
        return sorted(found, key=lambda row: -excess[row])

    def doubt(self, rows: list[int]) -> float:
        """How often chance makes the least clear of these ranks look as slow, where not only its distance speaks for it."""
        by_nature = np.where(self._often, 0.0, CHANCE_APART)
        doubts = np.where(self._clear | self._by_itself, 0.0, np.minimum(1.0, self.chance + by_nature))
        return float(np.max(doubts[rows], initial=0.0))


def program(collectives: Mapping[str, int], steps: int) -> Hashable:
    """What a rank does: how many collectives of which kind per step."""
    return tuple(sorted((op, round(count / max(1, steps))) for op, count in collectives.items()))


def peer_groups(stages: Sequence[int], programs: Sequence[Hashable]) -> PeerGroups:
    """Rows of equal (stage, program).

    >>> peer_groups([0, 0, 1], ["a", "a", "a"])
    ((0, 1), (2,))
    """
    groups: dict[tuple[int, Hashable], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(stages, programs, strict=True)):
        groups[key].append(row)
    return tuple(tuple(rows) for rows in groups.values())


def excess_over_peers(values: Floats, groups: PeerGroups) -> Excess:
    """Compare a ranks × steps quantity with the reference of each rank's peers."""
    reference = np.full(values.shape, np.nan)
    chance = np.ones(len(values))
    fast_halves: list[list[int]] = []
    swings: list[Floats] = []
    for group in groups:
        rows = list(group)
        fast = fast_half(nan_median(values[rows])) if len(rows) > 1 else []
        if fast:
            healthy = [rows[place] for place in fast]
            reference[rows] = nan_median(values[healthy].T)[None, :]
            chance[rows] = _chances(values[rows], values[healthy])
            fast_halves.append(healthy)
            swings.append(_swing(values, reference, [row for row in rows if healthy != [row]]))
    relative = _relative(values, reference)
    per_rank = _relative(nan_median(values), _median_reference(values, reference))
    noise = max(_deviation([relative[rows].ravel() for rows in fast_halves]), _deviation(swings))
    between = _deviation([per_rank[rows] for rows in fast_halves])
    return Excess(groups, values, reference, noise, between, chance)


def excess_undisturbed(times: Floats, groups: PeerGroups) -> Floats:
    """How much more each rank takes than its peers, the least over the columns of `times` (ranks × halves); nan = unknown.

    >>> excess_undisturbed(np.array([[10.0, 10.0], [15.0, 12.0]]), ((0, 1),)).round(3).tolist()
    [0.0, 0.2]
    """
    reference = np.full(times.shape, np.nan)
    for group in groups:
        rows = list(group)
        for column in range(times.shape[1]):
            fast = [rows[place] for place in fast_half(times[rows, column])] if len(rows) > 1 else []
            if fast:
                reference[rows, column] = np.median(times[fast, column])
    least: Floats = _relative(times, reference).min(axis=1, initial=np.inf)
    return np.where(np.isinf(least), np.nan, least)


def fast_half(values: Floats) -> list[int]:
    """Places of the lower half (the middle one included) of the known values, least first.

    >>> fast_half(np.array([5.0, 3.0, np.nan, 4.0]))
    [1, 3]
    """
    order = [int(place) for place in np.argsort(values, kind="stable") if not np.isnan(values[place])]
    return order[: (len(order) + 1) // 2]


def _known(values: Floats, rows: Sequence[int]) -> NDArray[np.int64]:
    return np.array([row for row in rows if not np.isnan(values[row])], dtype=np.int64)


def _relative(values: Floats, reference: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):  # a rank without work of its own
        relative: Floats = values / reference - 1
    return relative


def _median_reference(values: Floats, reference: Floats) -> Floats:
    """Over the steps in which the rank has a value."""
    return nan_median(np.where(np.isnan(values), np.nan, reference))


def _swing(values: Floats, reference: Floats, rows: list[int]) -> Floats:
    """How far each of these ranks strays from its median distance to the reference, step by step; noise multiplies."""
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
