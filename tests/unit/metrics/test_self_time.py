"""Where self time comes from: the recorded split, or the timeline of a whole peer group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline.metrics.self_time import self_time

NAN = np.nan
GROUPS = ((0, 1), (2, 3))


def timeline(*unknown: tuple[int, int]) -> Any:
    """Of four ranks and two steps; self time is 7 everywhere."""
    known = np.ones((4, 2), dtype=np.bool_)
    for place in unknown:
        known[place] = False
    return lambda: SimpleNamespace(known=known, self_time=lambda: np.full((4, 2), 7.0))


def recorded(*unknown: tuple[int, int]) -> np.ndarray:
    values = np.arange(8.0).reshape(4, 2)
    for place in unknown:
        values[place] = NAN
    return values


def test_what_was_recorded_counts_and_the_timeline_is_not_asked() -> None:
    values, known = recorded((0, 1)), np.ones((4, 2), dtype=np.bool_)
    known[0, 1] = False  # neither a step nor an event
    assert self_time(values, known, GROUPS, lambda: 1 / 0) is values  # type: ignore[arg-type, return-value]


def test_one_unrecorded_step_makes_its_whole_group_use_the_timeline() -> None:
    found = self_time(recorded((2, 0)), np.ones((4, 2), dtype=np.bool_), GROUPS, timeline())
    assert found.tolist() == [[0, 1], [2, 3], [7, 7], [7, 7]]


def test_a_step_that_the_timeline_does_not_know_either_changes_nothing() -> None:
    found = self_time(recorded((0, 1), (2, 0)), np.ones((4, 2), dtype=np.bool_), GROUPS, timeline((0, 1)))
    assert np.isnan(found[0, 1]) and found[[0, 1]].ravel()[[0, 2, 3]].tolist() == [0, 2, 3]
    assert found[2:].tolist() == [[7, 7], [7, 7]]
