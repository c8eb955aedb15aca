"""The smallest set of components that explains the excess of observations.

An observation is ln(measured / expected) with its deviation. A component covers observations and makes all of them slower
by one factor exp(theta); where several cover the same observation the slowest decides (a bottleneck). A set C scores

    sum over observations of [ rho(y) - rho(y - max theta of C there) ]  -  sum over C of price
    rho(z)   = (nu + 1) / 2 · ln(1 + z² / nu), at most MOST_NATS          Student's t: an outlier alone proves little
    nu       = 3 · ceil(n / 2), n executions up to five                   the median of n has tails as thin as this
    theta    = weighted median over what the component covers             weight: time that healthy links would need
    price    = PRICE + ln(number of components of the family) + what the family costs more

It is searched greedily, then by exchange, and again without each component of the first answer. A component must slow at
least MIN_SHARE of what it covers by MIN_FACTOR.
Components that cover the same observations cannot be told apart: they are one answer with several names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRICE = 5.0
MIN_FACTOR = 1.35
MIN_SHARE = 0.7
MOST_NATS = 25.0
MOST_COMPONENTS = 4
MIXED_SHARE = 1 / 3
"""With more than this share of the slow time unexplained the class is mixed: no component is named."""


@dataclass(frozen=True)
class Observations:
    """Arrays of equal length; see the head of the file."""

    excess: Floats
    deviation: Floats
    executions: Floats
    weight: Floats

    @property
    def suspicious(self) -> NDArray[np.bool_]:
        """Clearly slower than expected, seen alone."""
        clear: NDArray[np.bool_] = self.excess > np.maximum(0.75 * np.log(MIN_FACTOR), 2 * self.deviation)
        return clear

    def rho(self, rows: Ints, explained: Floats) -> Floats:
        freedom = 3 * np.ceil(np.clip(self.executions[rows], 1, 5) / 2)
        distance = (self.excess[rows] - explained) / self.deviation[rows]
        nats: Floats = np.minimum(MOST_NATS, (freedom + 1) / 2 * np.log1p(distance**2 / freedom))
        return nats


@dataclass(frozen=True, eq=False)
class Component:
    """Something that can be slow, with the observations it covers."""

    family: str
    key: tuple[int, ...]
    rows: Ints
    price: float


@dataclass(frozen=True)
class Explanation:
    """A component of the answer."""

    component: Component
    factor: float
    """How many times slower what it covers is."""
    margin: float
    """Nats that are lost when it is left out, after its price."""
    same: tuple[Component, ...] = ()
    """Others that cover the same observations."""


def explain(observations: Observations, candidates: Sequence[Component]) -> tuple[Explanation, ...]:
    """The components that explain the excess best, largest margin first; none where nothing stands out."""
    search = _Search(observations, _distinct(candidates))
    chosen = search.chosen()
    if not chosen or search.is_mixed(chosen):
        return ()
    found = [
        Explanation(one, float(np.exp(search.theta(one))), search.margin(one, chosen), _same(one, candidates))
        for one in chosen
    ]
    return tuple(sorted(found, key=lambda each: -each.margin))


class _Search:
    def __init__(self, observations: Observations, candidates: Sequence[Component]) -> None:
        self._seen = observations
        self._theta: dict[int, float] = {}
        self._candidates = [one for one in candidates if self._fits(one)]

    def theta(self, one: Component) -> float:
        known = self._theta.get(id(one))
        if known is None:
            known = weighted_median(self._seen.excess[one.rows], self._seen.weight[one.rows])
            self._theta[id(one)] = known
        return known

    def _fits(self, one: Component) -> bool:
        theta, seen = self.theta(one), self._seen
        if theta < np.log(MIN_FACTOR):
            return False
        weight = seen.weight[one.rows]
        slow = seen.excess[one.rows] > theta / 2
        return bool(weight[slow].sum() >= MIN_SHARE * weight.sum() and slow.mean() >= MIN_SHARE)

    def chosen(self) -> list[Component]:
        """The best set found, with every candidate and without each of those chosen then."""
        first = self._exchanged(self._greedy(self._candidates))
        others = [
            self._exchanged(self._greedy([each for each in self._candidates if each is not one])) for one in first
        ]
        return max([first, *others], key=self._score)

    def _greedy(self, candidates: Sequence[Component]) -> list[Component]:
        chosen: list[Component] = []
        while len(chosen) < MOST_COMPONENTS:
            others = [one for one in candidates if one not in chosen]
            best = max(others, key=lambda one: self.margin(one, chosen), default=None)
            if best is None or self.margin(best, chosen) <= 0:
                break
            chosen.append(best)
        return chosen

    def _exchanged(self, chosen: list[Component]) -> list[Component]:
        """Drop and swap while the score grows."""
        for _ in range(2 * MOST_COMPONENTS):
            chosen = [one for one in chosen if self.margin(one, chosen) > 0]
            score = self._score(chosen)
            swaps = [
                (self._score(rest) + self.margin(other, rest), place, other)
                for place in range(len(chosen))
                for rest in [chosen[:place] + chosen[place + 1 :]]
                for other in self._candidates
                if other not in chosen
            ]
            best = max(swaps, key=lambda swap: swap[0], default=None)
            if best is None or best[0] <= score + 1e-9:
                break
            chosen[best[1]] = best[2]
        return chosen

    def margin(self, one: Component, chosen: Sequence[Component]) -> float:
        """What this component adds to the others' score."""
        rows = one.rows
        others = self._explained([each for each in chosen if each is not one])[rows]
        gain = self._seen.rho(rows, others) - self._seen.rho(rows, np.maximum(others, self.theta(one)))
        return float(gain.sum()) - one.price

    def _score(self, chosen: Sequence[Component]) -> float:
        return sum(self.margin(one, chosen[:place]) for place, one in enumerate(chosen))

    def _explained(self, chosen: Sequence[Component]) -> Floats:
        explained = np.zeros(len(self._seen.excess))
        for one in chosen:
            explained[one.rows] = np.maximum(explained[one.rows], self.theta(one))
        return explained

    def is_mixed(self, chosen: Sequence[Component]) -> bool:
        """Much of the slow time lies where no component was found."""
        slow = self._seen.suspicious
        left = slow & (self._explained(chosen) == 0)
        lost = self._seen.weight * np.expm1(np.maximum(0, self._seen.excess))
        return bool(lost[left].sum() > MIXED_SHARE * lost[slow].sum())


def weighted_median(values: Floats, weights: Floats) -> float:
    """
    >>> weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, reached[-1] / 2))
    if reached[place] == reached[-1] / 2 and place + 1 < len(order):
        return float((values[order[place]] + values[order[place + 1]]) / 2)
    return float(values[order[place]])


def _distinct(candidates: Sequence[Component]) -> list[Component]:
    """One component for each set of observations: the first given, at the lowest price of them."""
    first: dict[bytes, Component] = {}
    for one in candidates:
        key = one.rows.tobytes()
        known = first.get(key)
        first[key] = one if known is None else replace(known, price=min(known.price, one.price))
    return list(first.values())


def _same(chosen: Component, candidates: Sequence[Component]) -> tuple[Component, ...]:
    return tuple(
        one
        for one in candidates
        if (one.family, one.key) != (chosen.family, chosen.key) and np.array_equal(one.rows, chosen.rows)
    )
