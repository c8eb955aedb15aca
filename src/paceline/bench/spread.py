"""Mean, deviation and outliers: nodes, ranks and repetitions compared with their peers.

    reference  = median of the peers
    sigma      = 1.4826 · MAD of the peers, at least the floor
    outlier    = |value - reference| > 5 · sigma  and  > 2.5 % of the reference

A fault makes a card slower, never faster: of cards and nodes only slow ones are outliers, with the median of the
faster half as reference, which also works for two of them and when half of them are slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

SIGMAS = 5.0
EFFECT_FLOOR = 0.025
_TO_SIGMA = 1.4826
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_STUDENT_MANY = 2.0
SMALLEST_SHARE = 0.002
"""Smallest relative sigma: three values may agree by chance."""


@dataclass(frozen=True)
class Spread:
    """Several measurements of one quantity."""

    count: int
    mean: float
    deviation: float | None
    """Standard deviation; None for fewer than two values."""
    least: float
    most: float

    @property
    def interval(self) -> float | None:
        """Half of the 95 % confidence interval of the mean; None for fewer than two values."""
        return None if self.deviation is None else mean_interval(self.count, self.deviation)

    @property
    def relative(self) -> float | None:
        return self.deviation / self.mean if self.deviation is not None and self.mean else None


@dataclass(frozen=True)
class Outlier:
    """A value that differs from those of its peers."""

    place: int
    value: float
    peers: float

    @property
    def percent(self) -> float:
        return 100 * (self.value / self.peers - 1) if self.peers else 0.0


def mean_interval(count: int, deviation: float) -> float:
    """Half of the 95 % confidence interval of a mean: t · s / √n."""
    return student(count - 1) * deviation / math.sqrt(count)


def student(freedom: int) -> float:
    """Student's t for 95 %, two-sided."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _STUDENT_MANY


def spread(values: Sequence[float]) -> Spread:
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(len(values), fmean(values), deviation, min(values), max(values))


def slow_values(values: Sequence[float]) -> list[Outlier]:
    """Values clearly below those of the faster half, worst first."""
    if len(values) < 2:
        return []
    faster = sorted(values, reverse=True)[: max(1, (len(values) + 1) // 2)]
    return _outliers(values, median(faster), _sigma(faster), slow_only=True)


def odd_values(values: Sequence[float]) -> list[Outlier]:
    """Values that differ from the others in either direction; needs at least three."""
    if len(values) < 3:
        return []
    return _outliers(values, median(values), _sigma(values), slow_only=False)


def _outliers(values: Sequence[float], reference: float, sigma: float, *, slow_only: bool) -> list[Outlier]:
    bound = max(SIGMAS * sigma, EFFECT_FLOOR * reference)
    found = [
        Outlier(place, value, reference)
        for place, value in enumerate(values)
        if (reference - value if slow_only else abs(value - reference)) > bound
    ]
    return sorted(found, key=lambda outlier: -abs(outlier.value - reference))


def _sigma(values: Sequence[float]) -> float:
    middle = median(values)
    sigma = _TO_SIGMA * median(abs(value - middle) for value in values)
    return max(sigma, SMALLEST_SHARE * middle) if math.isfinite(middle) else sigma
