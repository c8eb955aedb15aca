"""Confidence from what agrees, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.diagnosis.confidence import agreement, nearer


@pytest.mark.parametrize(
    ("agreeing", "of", "confidence"),
    [(0, 0, 0.5), (1, 1, 0.67), (5, 5, 0.86), (40, 40, 0.98), (1000, 1000, 0.99), (0, 8, 0.1), (4, 8, 0.5)],
)
def test_the_rule_of_succession(agreeing: int, of: int, confidence: float) -> None:
    assert agreement(agreeing, of) == confidence


def test_what_is_claimed_is_above_the_middle_and_the_rest_is_not() -> None:
    # Middle 15. 20 and 16 agree, 15 does not; 10 and 15 agree, 18 does not: 4 of 6.
    assert nearer([20, 16, 15], [10, 15, 18], at=20, normal=10) == 0.62  # 5 / 8 = 0.625


def test_the_unknown_is_no_observation() -> None:
    values = np.array([[10.0, np.nan], [np.nan, 10.0]])
    assert nearer(values, [np.nan], at=10) == 0.75  # 2 of 2


def test_noise_and_few_steps_lower_it() -> None:
    steady, noisy = [10.0] * 20, [10.0, 2.0] * 10
    assert nearer(steady, [], at=10) == 0.95  # 21 / 22
    assert nearer(noisy, [], at=10) == 0.5
    assert nearer(steady[:3], [], at=10) == 0.8
