"""Device memory that is nearly full or unevenly used."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.rules.memory import memory_imbalance, memory_pressure
from support.small_cluster import steady_cluster

GIB = 2**30
HOSTS = ["b", "a", "a", None]


def peaks(*gib: float | None, capacity: float | None = 100) -> list[dict[str, Any]]:
    total = None if capacity is None else round(capacity * GIB)
    return [
        {"rank": rank, "peak": round(peak * GIB), "capacity": total}
        for rank, peak in enumerate(gib)
        if peak is not None
    ]


def pressure(
    memory: list[dict[str, Any]], calls: str | None = "aclrtMalloc", self_times: Any = None, **columns: Any
) -> list[RuleFinding]:
    """Steps of 100 ms, 10 of them communication."""
    made = steady_cluster(self_times or [[90, 90]] * 4, columns=columns, host=HOSTS)
    return memory_pressure(made.context(ranks_memory=memory, host_calls=[{"rank": 0, "name": calls}] if calls else []))


def test_full_memory_that_is_allocated_and_freed_during_steps() -> None:
    [finding] = pressure(peaks(96, 97, 95, 98), free=20, data_wait=5)
    assert (finding.id, finding.confidence, finding.min_severity) == ("memory-pressure", 0.85, "medium")
    assert finding.subject == Subject(ranks=(0, 1, 2, 3), hosts=("a", "b"))
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "98 %"
    assert finding.evidence == (MeasuredValue("peak_memory_share", pytest.approx(98.0), unit="%"),)
    # 15 ms without kernels and not waiting for input; 1.5 ms are normal.
    assert (finding.gain.step_ms_now, finding.gain.step_ms_fixed) == (100, pytest.approx(86.5))


@pytest.mark.parametrize(("share", "ranks"), [(95, (1, 2)), (94.9, (1,))])
def test_memory_is_full_from_95_per_cent_on(share: float, ranks: tuple[int, ...]) -> None:
    [finding] = pressure(peaks(50, 99.04, share, 50))
    assert finding.subject == Subject(ranks=ranks, hosts=("a",))
    assert finding.evidence[0].value == 99.0
    assert pressure(peaks(50, 94, 90)) == pressure([]) == []


@pytest.mark.parametrize(
    ("calls", "fixed"), [("aclrtMallocPhysical", 86.5), ("aclrtFree", 86.5), ("launch", 100), (None, 100)]
)
def test_only_calls_that_allocate_or_free_show_that_it_costs_time(calls: str | None, fixed: float) -> None:
    [finding] = pressure(peaks(96, 96, 96, 96), calls, free=15)
    assert finding.gain.step_ms_fixed == pytest.approx(fixed)


def test_ranks_with_room_gain_nothing_and_unknown_ones_are_like_the_full_ones() -> None:
    # Rank 0 has room and still needs 80 ms.
    [finding] = pressure(peaks(50, 96, 96, None), self_times=[[80, 80]] + [[90, 90]] * 3, free=40)
    assert finding.gain.step_ms_fixed == pytest.approx(90)
    # Nothing is known of rank 3: all of them need 38.5 ms less.
    [finding] = pressure(peaks(96, 96, 96, None), free=40)
    assert finding.gain.step_ms_fixed == pytest.approx(61.5)
    # Nothing is known of the idle time of rank 3.
    [finding] = pressure(peaks(96, 96, 96, 96), free=[40, 40, 40, None])
    assert finding.gain.step_ms_fixed == 100
    # It idles less than is normal.
    [finding] = pressure(peaks(96, 96, 96, 96), free=[40, 40, 40, 1])
    assert finding.gain.step_ms_fixed == 100


def imbalance(*gib: float | None) -> list[RuleFinding]:
    made = steady_cluster([[90]] * 4, host=HOSTS)
    return memory_imbalance(made.context(ranks_memory=peaks(*gib)))


def test_ranks_that_use_more_than_their_peers() -> None:
    [finding] = imbalance(40, 52, 40, 60)
    assert (finding.id, finding.confidence, finding.min_severity) == (
        "memory-imbalance",
        0.83,
        "medium",
    )  # 4 of 4 ranks
    assert finding.subject == Subject(ranks=(1, 3), hosts=("a",)) and finding.gain == PredictedGain(100, 100)
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "50 %"
    assert finding.evidence == (MeasuredValue("peak_memory", 60.0, 40.0, "GiB"),)


@pytest.mark.parametrize(
    ("memory", "ranks"),
    [
        ((40, 40, 40, 50.1), (3,)),
        ((40, 40, 40, 50), None),
        ((40, 40, 50.1, 50.1), (2, 3)),  # half of the ranks
        ((40, 52, 52, 52), None),  # the fast half is 40 and 52: nobody has a quarter more than 46
        ((40, 40, None, 60), (3,)),
        ((None, 40, 40, 60), (3,)),
    ],
)
def test_a_quarter_more_than_the_peers(memory: tuple[float | None, ...], ranks: tuple[int, ...] | None) -> None:
    assert [finding.subject.ranks for finding in imbalance(*memory)] == ([ranks] if ranks else [])


def test_where_more_than_half_use_more_nobody_stands_out() -> None:
    # Of three peers two use more; the others have peers of their own.
    made = steady_cluster([[90]] * 5, stage=[0, 0, 0, 0, 0])
    assert memory_imbalance(made.context(ranks_memory=peaks(10, 30, 60, 60, 60))) == []
    assert memory_imbalance(made.context(ranks_memory=peaks(10, 10, 30, 60, 60))) == []
    [finding] = memory_imbalance(made.context(ranks_memory=peaks(10, 10, 10, 60, 60.126)))
    assert finding.evidence[0].value == 60.13
