"""What is passed around cannot be changed by whoever gets it."""

from __future__ import annotations

import pytest

from support.immutable import dataclasses_of


@pytest.mark.parametrize("found", dataclasses_of("paceline.metrics"), ids=lambda found: found.__name__)
def test_results_are_frozen(found: type) -> None:
    assert found.__dataclass_params__.frozen  # type: ignore[attr-defined]
