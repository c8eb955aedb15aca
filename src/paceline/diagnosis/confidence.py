"""How sure a finding is: the rule of succession over what was observed.

    confidence = (observations that agree + 1) / (observations + 2), at most MOST

the chance that the next observation shows it too (Laplace), if nothing was known before. What counts as an observation is the
rule's to say: a rank in a step, a step, a collective, a rank. It agrees if it is nearer to what the finding claims than to
what is usual. So few steps, few ranks and noise lower it; gaps in the recording lower it afterwards (evidence_gaps.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

MOST = 0.99
"""No recording shows more."""


def agreement(agreeing: int, observations: int) -> float:
    """
    >>> agreement(3, 3), agreement(3, 4), agreement(0, 0), agreement(500, 500)
    (0.8, 0.67, 0.5, 0.99)
    """
    return round(min(MOST, (agreeing + 1) / (observations + 2)), 2)


def nearer(claimed: ArrayLike, usual: ArrayLike, *, at: float, normal: float = 0.0) -> float:
    """Agreement of values where the finding claims `at`, and of values elsewhere, where `normal` is usual; nan is no observation.

    >>> nearer([9, 10, 4], [1, 2], at=10, normal=0)  # 4 is nearer to what is usual
    0.71
    """
    middle = (at + normal) / 2
    high, low = (np.asarray(values, dtype=np.float64).ravel() for values in (claimed, usual))
    high, low = high[~np.isnan(high)], low[~np.isnan(low)]
    return agreement(int((high > middle).sum() + (low <= middle).sum()), len(high) + len(low))
