"""Steps in which all ranks stand still together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.diagnosis.rules.common_stalls import common_stalls
from support.small_cluster import SmallCluster


def cluster(longer: Sequence[float], *, ranks: int = 4, waits: bool = False) -> SmallCluster:
    """Ranks that work 90 ms and sum for 10; in each step the first ones longer by so many ms, all of it for input if `waits`."""
    small = SmallCluster(4)
    for more in longer:
        late = [more if rank < ranks else 0.0 for rank in range(4)]
        small.work([90 + each for each in late])
        small.meet(range(4), 10)
        small.end_step(data_wait=late if waits else [0.0] * 4)
    return small


def test_a_save_on_all_ranks_returns_and_is_nobodys_fault() -> None:
    [finding] = common_stalls(cluster([0, 0, 100, 0, 0, 100, 0, 0, 100]).context())
    assert (finding.id, finding.subject.ranks, finding.subject.steps) == ("periodic-stall", (0, 1, 2, 3), (3, 6, 9))
    assert finding.gain.step_ms_fixed == pytest.approx(100) and finding.gain.percent == pytest.approx(25)


def test_every_second_step_is_a_pause_too() -> None:
    context = cluster([0, 100, 0, 100, 0, 100]).context()
    [finding] = common_stalls(context)
    assert (finding.id, finding.subject.steps, finding.confidence) == ("periodic-stall", (2, 4, 6), 0.88)
    assert finding.gain.step_ms_fixed == pytest.approx(100)


@pytest.mark.parametrize(
    "small",
    [
        cluster([0, 0, 100, 0, 0, 100, 0, 0, 100], ranks=2),  # the others wait for two
        cluster([0, 0, 100, 0, 0, 100, 0, 0, 100], waits=True),  # input is late
        cluster([0, 100, 100, 0, 0, 100]),  # as often as not
        cluster([0, 100, 0, 100, 0, 100, 0, 0]),  # not up to the end
        cluster([100, 0, 0, 0, 0, 0]),  # the profiler starts
        cluster([0, 0, 9, 0, 0, 0]),
        cluster([0, 0, 100]),  # too few steps to know what is usual
    ],
)
def test_no_common_stall(small: SmallCluster) -> None:
    assert not common_stalls(small.context())
