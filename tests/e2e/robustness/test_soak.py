"""A sample of the soak (`make soak` asks 50,000 times): what grows with every request shows here too."""

from __future__ import annotations

import doctest

from robustness import soak


def test_growth_is_told_from_warming_up() -> None:
    assert doctest.testmod(soak).failed == 0


def test_memory_and_descriptors_stay_flat_and_no_answer_is_a_server_error() -> None:
    found = soak.soak(1500, clients=4, seed=7)
    assert sum(found.codes.values()) == 1500
    assert found.codes["200"] > 500, found.codes
    assert found.codes["aborted"] > 10
    assert found.codes["500"] == 0, found.codes
    assert soak.growth(found.samples) == [], found.samples
