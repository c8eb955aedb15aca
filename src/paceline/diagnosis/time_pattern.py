"""In which steps something shows, as the simplest pattern: always, since a step, until one, every k steps, in some, once.

since    the last steps, two or more, and none before           until    the first steps likewise
every    every k-th step of the whole recording, k of at least 2
grows    since a step, and more and more: GROWING_STEPS steps or more, rank correlation with the step at least MONOTONE,
         the mean of the last two at least GROWTH times that of the first two
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paceline.diagnosis.finding import Pattern, When

GROWING_STEPS = 5
MONOTONE = 0.85
GROWTH = 1.4


def time_pattern(shows: Sequence[bool], steps: Sequence[int], amounts: ArrayLike | None = None) -> When | None:
    """The pattern of the steps in which something shows; None where it shows in none.

    `amounts` tells how much of it there is in each step.

    >>> time_pattern([False, True, False, True], [1, 2, 3, 4])
    When(pattern='every', steps=(2, 4), of=4, every=2)
    >>> time_pattern([False, False, True, True], [1, 2, 3, 4]).pattern
    'since'
    """
    columns = [column for column, shown in enumerate(shows) if shown]
    if not columns:
        return None
    named = tuple(int(steps[column]) for column in columns)
    every = columns[1] - columns[0] if returns_regularly(columns, len(shows)) else None
    pattern = When("every", named, len(shows), every) if every else When(_name(columns, len(shows)), named, len(shows))
    grows = (
        amounts is not None
        and pattern.pattern in ("always", "since")
        and _grows(np.asarray(amounts, dtype=np.float64)[columns])
    )
    return When("grows", named, len(shows)) if grows else pattern


def returns_regularly(columns: list[int], steps: int) -> bool:
    """Whether these are every k-th of the steps, k of at least 2.

    >>> returns_regularly([1, 3, 5], 6), returns_regularly([1, 3, 5], 8), returns_regularly([2], 6)
    (True, False, False)
    """
    if len(columns) < 2:
        return False
    every = columns[1] - columns[0]
    return every >= 2 and columns[0] < every and columns == list(range(columns[0], steps, every))


def _name(columns: list[int], steps: int) -> Pattern:
    if len(columns) == steps:
        return "always"
    if len(columns) == 1:
        return "once"
    if columns == list(range(steps - len(columns), steps)):
        return "since"
    return "until" if columns == list(range(len(columns))) else "some"


def _grows(amounts: NDArray[np.float64]) -> bool:
    if len(amounts) < GROWING_STEPS or np.isnan(amounts).any() or np.std(amounts) == 0:
        return False
    order = np.argsort(np.argsort(amounts))
    rising = float(np.corrcoef(order, np.arange(len(amounts)))[0, 1])
    return rising >= MONOTONE and float(amounts[-2:].mean()) >= GROWTH * float(amounts[:2].mean()) > 0
