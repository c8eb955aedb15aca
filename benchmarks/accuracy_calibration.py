"""Calibration: of first findings with a confidence in each range, how many are right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.01)
Pair = tuple[float, bool]
"""Confidence of a first finding, and whether it is right."""


def calibration_error(pairs: Sequence[Pair]) -> float:
    """Mean over the findings of |confidence - share that is right|, range by range."""
    return sum(len(inside) * abs(_gap(inside)) for _, _, inside in _ranges(pairs)) / max(1, len(pairs))


def print_calibration(pairs: Sequence[Pair]) -> None:
    """One line for each range that holds findings, then the error."""
    if not pairs:
        return
    print("\nconfidence of the first finding   mean   right")
    for low, high, inside in _ranges(pairs):
        mean, right = np.mean([pair[0] for pair in inside]), np.mean([pair[1] for pair in inside])
        print(f"{low:4.0%} – {min(high, 1):4.0%}  {len(inside):4} findings   {mean:5.0%}   {right:5.0%}")
    print(f"expected calibration error {calibration_error(pairs):.3f}\n")


def _ranges(pairs: Sequence[Pair]) -> list[tuple[float, float, list[Pair]]]:
    ranges = ((low, high, [pair for pair in pairs if low <= pair[0] < high]) for low, high in pairwise(BINS))
    return [(low, high, inside) for low, high, inside in ranges if inside]


def _gap(inside: Sequence[Pair]) -> float:
    return float(np.mean([pair[0] for pair in inside]) - np.mean([pair[1] for pair in inside]))
