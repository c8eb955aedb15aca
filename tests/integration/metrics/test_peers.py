"""Who has a habit: proved by size where steps are steady, by losing nearly always where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.peers import excess_over_peers

RUNS = 400


def found(own: np.ndarray) -> list[int]:
    return excess_over_peers(own, (tuple(range(len(own))),)).persistent()


def noisy(seed: int, ranks: int, steps: int) -> np.ndarray:
    """Own times that a busy scheduler stretches: usually a little, sometimes by half."""
    return 100 * (1 + np.random.default_rng(seed).gamma(1.5, 0.13, (ranks, steps)))


@pytest.mark.parametrize(("ranks", "steps"), [(2, 5), (4, 8), (4, 12), (16, 6)])
def test_ranks_that_take_turns_in_being_slow_have_no_habit(ranks: int, steps: int) -> None:
    blamed = sum(bool(found(noisy(seed, ranks, steps))) for seed in range(RUNS))
    assert blamed <= 0.02 * RUNS


def test_a_rank_that_loses_nearly_every_noisy_step_has_one() -> None:
    named = 0
    for seed in range(RUNS):
        own = noisy(seed, 4, 12)
        own[2] *= 1.6
        named += found(own) == [2]
    assert named >= 0.95 * RUNS


def test_a_steady_rank_needs_few_steps_to_be_named() -> None:
    own = 100 + 0.1 * np.random.default_rng(1).standard_normal((4, 3))
    own[1] *= 1.05
    assert found(own) == [1]
