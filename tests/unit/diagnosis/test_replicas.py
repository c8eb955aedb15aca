"""Replicas that take longer together got longer data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.rules.compute import slow_computing
from paceline.diagnosis.rules.replicas import longer_replicas, slow_by_themselves
from paceline.diagnosis.rules.unsteady import unsteady_steps
from support.small_cluster import SmallCluster

LONGER = [30, 28, 33, 27, 34, 31]
"""What replica 1 works longer in each step, ms."""


def two_stages(first: Sequence[float], second: Sequence[float], **columns: Any) -> DiagnosisContext:
    """Ranks 0 and 1 are stage 0, 2 and 3 stage 1; 0 and 2 are a replica, 1 and 3 the other, which works longer by so many ms."""
    made = SmallCluster(4, **{"stage": [0, 0, 1, 1], **columns})
    for more, behind in zip(first, second, strict=True):
        for part in (0.5, 0.5):
            made.work([100 * part, (100 + more) * part, 100 * part, (100 + behind) * part])
            made.meet(range(4), 5)
        made.end_step()
    groups = [{"group": f"pp{rank % 2}", "kind": "pp", "rank": rank} for rank in range(4)]
    return made.context(groups=groups)


def test_a_replica_that_takes_longer_on_all_stages_has_longer_data() -> None:
    context = two_stages(LONGER, LONGER)
    assert context.excess.persistent() and slow_by_themselves(context) == [] == slow_computing(context)
    assert longer_replicas(context) == {1, 3}
    [finding] = unsteady_steps(context)
    assert (finding.id, finding.subject.ranks) == ("load-imbalance", (1,))  # a quarter of the ranks is named
    assert finding.gain.percent > 5


@pytest.mark.parametrize(
    "context",
    [
        two_stages(LONGER, LONGER[::-1]),  # each by its own amount
        two_stages(LONGER, [0] * 6),  # only one of its ranks
        two_stages([3, 2, 3, 2, 3, 2], [3, 2, 3, 2, 3, 2]),  # hardly
        two_stages(LONGER, LONGER, stage=[0] * 4, host=["a"] * 4),  # what disturbs a host holds up all its ranks
    ],
)
def test_ranks_that_are_slow_by_themselves(context: DiagnosisContext) -> None:
    assert slow_by_themselves(context) == context.excess.persistent() and not longer_replicas(context)
