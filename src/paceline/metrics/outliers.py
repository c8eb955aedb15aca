"""Who differs from its peers always: a test of each rank's typical value against how much ranks differ by nature.

Ranks that do the same are never quite equal, and how unequal they are differs from machine to machine; so no constant says
from which difference on one is slow. With m values left, of which the largest is x and the others have mean and s:

    t(m)     = (x - mean) / (s √(1 + 1 / (m - 1)))
    apart    the i largest, for the greatest i ≤ n / 4 with P(Student's t with m - 1 - g degrees > t(m)) < α / m, m = n - i + 1

g is the number of groups whose own middles were taken off the values; 1 for a single group.

This is the generalized extreme Studentized deviate test (B. Rosner, Technometrics 25, 1983), one-sided: several that are slow
do not hide each other, and no value is an outlier among three.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_APART = 0.25
"""More than this share of the values are no exception."""


def high_outliers(values: Floats, alpha: float, groups: int = 1) -> list[int]:
    """Places of the values that are larger than the others differ; `alpha`: how often chance may find one at all.

    >>> high_outliers(np.array([1.00, 1.01, 0.99, 1.00, 1.01, 0.99, 1.00, 1.20]), 0.001)
    [7]
    >>> high_outliers(np.array([1.00, 1.01, 0.99, 1.00]), 0.001)
    []
    """
    order = [int(place) for place in np.argsort(-values, kind="stable") if not np.isnan(values[place])]
    most = int(MOST_APART * len(order))
    apart = 0
    for number in range(min(most, len(order) - 2 - groups)):
        left = len(order) - number
        if student_tail(_studentized(values[order[number:]]), left - 1 - groups) < alpha / left:
            apart = number + 1
    return sorted(order[:apart])


def student_tail(t: float, degrees: int) -> float:
    """P(T > t), t >= 0, of Student's t: its finite series for whole degrees of freedom.

    >>> round(student_tail(1.0, 1), 6), round(student_tail(2.0, 2), 6)
    (0.25, 0.091752)
    """
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for power in range(2 + odd, degrees - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, (1 - inside) / 2)


def _studentized(values: Floats) -> float:
    """The first of these against the others."""
    others = values[1:]
    spread = float(others.std(ddof=1)) * math.sqrt(1 + 1 / len(others))
    over = max(0.0, float(values[0] - others.mean()))
    return over / spread if spread > 0 else (math.inf if over > 0 else 0.0)
