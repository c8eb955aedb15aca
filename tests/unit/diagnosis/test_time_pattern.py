"""In which steps something shows, as a pattern."""

from __future__ import annotations

import pytest

from paceline.diagnosis.finding import Pattern
from paceline.diagnosis.time_pattern import time_pattern


@pytest.mark.parametrize(
    ("shows", "pattern", "every"),
    [
        ([1, 1, 1, 1], "always", None),
        ([0, 0, 1, 1], "since", None),
        ([1, 1, 0, 0], "until", None),
        ([0, 1, 0, 1], "every", 2),
        ([1, 0, 0, 1, 0, 0], "every", 3),
        ([0, 1, 0, 1, 0, 0], "some", None),  # not up to the end
        ([0, 1, 1, 0], "some", None),
        ([0, 0, 0, 1], "once", None),
    ],
)
def test_the_simplest_pattern_is_said(shows: list[int], pattern: Pattern, every: int | None) -> None:
    found = time_pattern([bool(each) for each in shows], list(range(10, 10 + len(shows))))
    assert found is not None and (found.pattern, found.every, found.of) == (pattern, every, len(shows))
    assert found.steps == tuple(10 + column for column, shown in enumerate(shows) if shown)


def test_what_shows_nowhere_has_no_pattern() -> None:
    assert time_pattern([False, False], [1, 2]) is None


@pytest.mark.parametrize(
    ("amounts", "pattern"),
    [
        ([0, 1, 2, 3, 4, 5], "grows"),
        ([0, 1, 2, 3, 5, 4], "grows"),  # nearly in order
        ([0, 5, 4, 3, 2, 1], "since"),
        ([0, 5, 5.1, 5.2, 5.3, 5.4], "since"),  # hardly
        ([0, 5, 5, 5, 5, 5], "since"),
        ([0, 1, 2, 3, 4, float("nan")], "since"),
    ],
)
def test_growing_is_told_from_lasting(amounts: list[float], pattern: Pattern) -> None:
    found = time_pattern([False] + 5 * [True], list(range(6)), amounts)
    assert found is not None and found.pattern == pattern


def test_few_steps_do_not_grow() -> None:
    found = time_pattern(4 * [True], list(range(4)), [1, 2, 3, 4])
    assert found is not None and found.pattern == "always"
