"""Collectives that took long in one step, and what is reported of a stall."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, RuleFinding
from paceline.diagnosis.rules.one_off import one_off_stall, one_off_transfers
from support.small_cluster import SmallCluster, steady_cluster


def pair_and_all(
    times: Mapping[int, float], *, steps: int = 6, usual: float = 10, others: Mapping[int, float] | None = None
) -> SmallCluster:
    """Ranks 2 and 3 meet for `usual` ms, in some steps for these; then all four for 10 ms.

    All work 80 ms, ranks 0 and 1 in some steps so much longer.
    """
    cluster = SmallCluster(4, host=["a", "a", "b", "c"])
    for step in range(steps):
        more = (others or {}).get(step, 0)
        cluster.work([80 + more, 80 + more, 80, 80])
        cluster.meet([2, 3], times.get(step, usual), group="pair")
        cluster.meet(range(4), 10, group="all")
        cluster.end_step()
    return cluster


def stalls(times: Mapping[int, float], **more: object) -> list[RuleFinding]:
    return one_off_transfers(pair_and_all(times, **more).context())  # type: ignore[arg-type]


def test_a_transfer_that_took_long_once() -> None:
    [finding] = stalls({3: 52.3454})
    assert (finding.id, finding.confidence, finding.min_severity) == ("one-off-stall", 0.88, "low")  # 6 of 6 steps
    assert not finding.chronic
    assert finding.subject == Subject(ranks=(2, 3), hosts=("b", "c"), steps=(4,))
    # Six steps of 100 ms, one of them 42.3454 ms longer.
    assert finding.gain == PredictedGain(pytest.approx(100 + 42.3454 / 6), pytest.approx(100))
    assert str(finding.amount) == "42 ms" and finding.amount and finding.amount.value == pytest.approx(42.3454)
    assert finding.evidence == (MeasuredValue("step_time", 142.345, 100.0, "ms"),)


def test_a_stall_of_several_steps_shows_the_longest_and_loses_all() -> None:
    context = steady_cluster([[90, 95, 120, 90, 150]] * 2, host=["b", "a"]).context()
    finding = one_off_stall(context, [1, 0], [2, 4], 81.2345, min_severity="medium")
    # Steps of 100, 105, 130, 100 and 160 ms: the mean is 119, the median 105.
    assert finding.subject == Subject(ranks=(0, 1), hosts=("a", "b"), steps=(3, 5))
    assert finding.gain == PredictedGain(pytest.approx(119), pytest.approx(119 - 81.2345 / 5))
    assert finding.evidence == (MeasuredValue("step_time", 160.0, 105.0, "ms"),)
    assert (finding.min_severity, str(finding.amount)) == ("medium", "81 ms")


def test_steps_are_shown_to_the_microsecond() -> None:
    context = steady_cluster([[90.12345] * 4] * 2).context()
    finding = one_off_stall(context, [0], [1], 1, min_severity="low")
    assert finding.evidence == (MeasuredValue("step_time", 100.123, 100.123, "ms"),)


@pytest.mark.parametrize(
    ("usual", "took", "is_found"),
    [
        (10, 30.1, True),  # three times as long
        (10, 30, False),
        (4, 13.5, True),  # steps of 94 ms: 9.4 ms longer
        (4, 13.3, False),
    ],
)
def test_an_outlier_takes_three_times_as_long_and_a_tenth_of_the_step_longer(
    usual: float, took: float, is_found: bool
) -> None:
    assert bool(stalls({3: took}, usual=usual)) is is_found


@pytest.mark.parametrize(("waiting", "lost"), [(49.9, 10.1), (50, 10), (50.1, None), (70, None)])
def test_a_stall_makes_the_step_a_tenth_longer(waiting: float, lost: float | None) -> None:
    # 60 ms more than usual, but ranks 0 and 1 arrive later too.
    found = stalls({3: 70}, others={3: waiting + 10})
    assert [finding.amount and finding.amount.value for finding in found] == ([pytest.approx(lost)] if lost else [])


@pytest.mark.parametrize(("steps", "is_found"), [(4, True), (3, False)])
def test_a_median_needs_four_steps(steps: int, is_found: bool) -> None:
    assert bool(stalls({1: 50}, steps=steps)) is is_found


@pytest.mark.parametrize(
    ("recorded", "is_found"),
    [
        (4, True),
        (3, False),  # it took what it takes
    ],
)
def test_a_median_needs_four_times_the_same_collective(recorded: int, is_found: bool) -> None:
    cluster = SmallCluster(2)
    for step in range(6):
        cluster.work([90, 90])
        cluster.meet([0, 1], 10, group="always")
        if step < recorded:
            cluster.meet([0, 1], 50 if step == 1 else 1, group="sometimes", op="broadcast")
        cluster.end_step()
    assert bool(one_off_transfers(cluster.context())) is is_found


@pytest.mark.parametrize(
    ("slow", "steps", "found"),
    [
        ([1, 4], 6, [(2,), (5,)]),
        ([4, 1, 6], 9, [(2,), (5,), (7,)]),  # a third of the steps
        ([1, 4, 6], 8, []),  # more: that is no single event
        ([1, 3], 5, []),
    ],
)
def test_what_happens_in_more_than_a_third_of_the_steps_is_no_single_event(
    slow: list[int], steps: int, found: list[tuple[int, ...]]
) -> None:
    stalled = stalls(dict.fromkeys(slow, 50), steps=steps)
    assert [finding.subject.steps for finding in stalled] == found


def test_all_outliers_of_a_step_are_one_finding() -> None:
    cluster = SmallCluster(4)
    for step in range(5):
        cluster.work([80] * 4)
        cluster.meet([0, 1], 50 if step == 2 else 10, group="first")
        cluster.meet([2, 3], 70 if step == 2 else 10, group="second")
        cluster.meet(range(4), 10, group="all")
        cluster.end_step()
    [finding] = one_off_transfers(cluster.context())
    assert finding.subject == Subject(ranks=(0, 1, 2, 3), steps=(3,))
    assert finding.amount and finding.amount.value == pytest.approx(60)  # the longer of 40 and 60 ms


def test_transfers_that_lose_less_than_a_tenth_each_are_no_outliers() -> None:
    cluster = SmallCluster(2)
    for step in range(5):
        cluster.work([92, 92])
        for group in ("first", "second"):  # 8.5 ms longer, 17 ms both
            cluster.meet([0, 1], 12.5 if step == 2 else 4, group=group)
        cluster.end_step()
    assert one_off_transfers(cluster.context()) == []


def test_collectives_are_compared_with_the_same_ones_of_other_steps() -> None:
    cluster = SmallCluster(2)
    for step in range(5):
        cluster.work([50, 50])
        for time in (2, 3, 40):  # the third always takes long
            cluster.meet([0, 1], time, group="dp")
        cluster.meet([0, 1], 45 if step == 2 else 5, group="tp")
        cluster.end_step()
    [finding] = one_off_transfers(cluster.context())
    assert finding.subject.steps == (3,) and finding.amount and finding.amount.value == pytest.approx(40)


@pytest.mark.parametrize(
    ("long", "id"),
    [
        ((3, 6, 9), "periodic-stall"),
        ((2, 5, 8), "periodic-stall"),
        ((3, 6), "one-off-stall"),  # the ninth is missing
        ((4, 8), "periodic-stall"),
        ((1, 2, 3), "one-off-stall"),
        ((4,), "one-off-stall"),
    ],
)
def test_pauses_at_a_regular_distance_return(long: tuple[int, ...], id: str) -> None:
    times = [90 if step + 1 not in long else 150 for step in range(9)]
    context = steady_cluster([times] * 2).context()
    finding = one_off_stall(context, [0], [step - 1 for step in long], 60 * len(long), min_severity="low")
    assert finding.id == id
    assert str(finding.detail) == (str(long[1] - long[0]) if id == "periodic-stall" else "None")


def test_two_pauses_of_different_length_are_two_events() -> None:
    times = [90, 90, 90, 150, 90, 90, 90, 110, 90]
    context = steady_cluster([times] * 2).context()
    assert one_off_stall(context, [0], [3, 7], 80, min_severity="low").id == "one-off-stall"
