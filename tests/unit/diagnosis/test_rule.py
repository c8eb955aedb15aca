"""Our rules and their order."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from paceline.core.plugins import our_plugins
from paceline.diagnosis.rule import ENTRY_POINTS, our_rules, rule

ORDER = {
    "slow-computing": 10,
    "uneven-tokens": 15,
    "stage-imbalance": 20,
    "pipeline-bubble": 30,
    "slow-links": 40,
    "small-packets": 50,
    "bandwidth-contention": 60,
    "comm-exposed": 70,
    "input-bound": 80,
    "held-up-host": 85,
    "host-bound": 90,
    "cpu-operators": 100,
    "unsteady-steps": 110,
    "memory-pressure": 120,
    "memory-imbalance": 130,
    "data-incomplete": 140,
}


def test_our_rules_come_by_priority() -> None:
    named = {name.replace("-", "_"): priority for name, priority in ORDER.items()}
    assert {each.find.__name__: each.priority for each in our_rules()} == named
    assert [each.priority for each in our_rules()] == sorted(ORDER.values())
    assert set(our_plugins(ENTRY_POINTS)) == set(ORDER)


def test_a_rule_is_called_like_the_function_it_is_made_of() -> None:
    made = rule(priority=7)(lambda context: [context])  # type: ignore[list-item]
    assert made.priority == 7 and made("context") == ["context"]  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(FrozenInstanceError):
        made.priority = 8  # type: ignore[misc]
