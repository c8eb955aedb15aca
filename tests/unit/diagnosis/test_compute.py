"""Ranks slower than their peers, and the reason: clusters of which one number crosses a threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.rules.compute import slow_computing
from support.small_cluster import MS, slower, steady_cluster


def found(times: Mapping[int, float], ranks: int = 8, **more: Any) -> list[RuleFinding]:
    """With these self times instead of 100 ms; the step lasts the longest + 10 ms."""
    tables = more.pop("tables", {})
    return slow_computing(steady_cluster(slower(ranks, 4, times), **more).context(**tables))


def amounts(findings: list[RuleFinding]) -> dict[tuple[str, tuple[int, ...]], str]:
    return {(finding.id, finding.subject.ranks): str(finding.amount) for finding in findings}


def test_a_slow_rank() -> None:
    [finding] = found({3: 120}, host=["a"] * 8)
    assert finding.subject == Subject(ranks=(3,), hosts=("a",))
    assert (finding.id, finding.gain) == ("slow-rank", PredictedGain(130, 110))
    assert (str(finding.amount), finding.detail) == ("20 %", None)
    assert finding.evidence == (
        MeasuredValue("self_time", 120.0, 100.0, "ms"),
        MeasuredValue("last_to_arrive", 100.0, unit="percent_of_collectives"),
    )
    assert finding.min_severity == "low" and finding.chronic


def test_nobody_is_slow() -> None:
    assert found({3: 102}) == []


def test_evidence_is_rounded_and_counts_how_often_the_rank_came_last() -> None:
    times = slower(8, 3, {})
    times[3] = [120.0004, 120.0006, 100]
    [finding] = slow_computing(steady_cluster(times).context())
    # Slow, and the last, in two of three steps.
    assert [measured.value for measured in finding.evidence] == [120.0, 2, 66.7]
    assert finding.gain == PredictedGain(pytest.approx(110 + 40 / 3, abs=0.001), pytest.approx(110, abs=0.001))


@pytest.mark.parametrize(
    ("times", "ranks"),
    [({2: 150, 5: 110.1}, (2, 5)), ({2: 150, 5: 109.9}, (2,)), ({2: 150, 5: 110.1, 6: 103}, (2, 5))],
)
def test_ranks_with_less_than_a_fifth_of_the_worst_excess_are_not_named(
    times: dict[int, float], ranks: tuple[int, ...]
) -> None:
    [finding] = found(times)
    assert finding.subject.ranks == ranks and str(finding.amount) == "50 %"
    assert finding.evidence[0].value == 150


@pytest.mark.parametrize(
    ("mine", "peer", "confidence"),
    [
        ([120] * 4, [100] * 4, 0.97),  # 8 ranks × 4 steps agree: 33 / 34
        ([120] * 20, [100] * 20, 0.99),
        ([120] * 3 + [101], [100] * 4, 0.97),  # slow in three steps, as its peers in the fourth
        ([106] * 4, [104, 104, 100, 100], 0.91),  # a peer is nearer to it in two steps: 31 / 34
        ([102] * 9, [100] * 9, 0.94),  # 73 / 74, but one rank of the run is as unlike by nature with a chance of 0.05
    ],
)
def test_confidence_grows_with_what_agrees(mine: list[float], peer: list[float], confidence: float) -> None:
    times = slower(8, len(mine), {})
    times[2], times[3] = peer, mine
    [finding] = slow_computing(steady_cluster(times).context())
    assert finding.confidence == confidence


def test_the_confidence_of_several_ranks_is_that_of_the_least() -> None:
    [finding] = found({2: 120, 3: 105})
    assert finding.confidence == 0.97  # 8 ranks × 4 steps


# -- whole hosts ------------------------------------------------------------------------------------------------------

HOSTS = ["a"] * 4 + ["b"] * 4


def test_a_slow_host_shows_the_numbers_of_its_median_rank() -> None:
    [finding] = found({4: 120, 5: 140, 6: 130}, host=HOSTS)
    assert (finding.id, finding.subject) == ("slow-host", Subject(ranks=(4, 5, 6), hosts=("b",)))
    assert str(finding.amount) == "30 %" and finding.evidence[0] == MeasuredValue("self_time", 130.0, 100.0, "ms")
    assert finding.gain == PredictedGain(150, pytest.approx(110)) and finding.min_severity == "low"
    assert finding.confidence == 0.97  # 8 ranks × 4 steps


@pytest.mark.parametrize(
    ("times", "hosts", "expected"),
    [
        ({4: 120, 5: 120, 6: 120}, HOSTS, {"slow-host": (4, 5, 6)}),
        ({4: 120, 5: 120}, HOSTS, {"slow-rank": (4, 5)}),  # half of the host
        ({4: 120, 5: 120, 6: 120, 0: 130}, HOSTS, {"slow-host": (4, 5, 6), "slow-rank": (0,)}),
        ({4: 120, 5: 120, 6: 120}, [None] * 4 + ["b"] * 4, {"slow-rank": (4, 5, 6)}),  # no other host
        ({4: 120}, list("abcdefgh"), {"slow-rank": (4,)}),  # a host of one rank
        ({6: 120, 7: 120}, ["a"] * 6 + ["b"] * 2, {"slow-host": (6, 7)}),
    ],
)
def test_a_host_is_slow_when_three_quarters_of_its_ranks_are(
    times: dict[int, float], hosts: list[str | None], expected: dict[str, tuple[int, ...]]
) -> None:
    assert {each.id: each.subject.ranks for each in found(times, host=hosts)} == expected


@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        ([1, 1, 1, 1, 31, 31, 31, 31], "input-bound"),  # 30 of the 30 ms that its ranks need longer
        ([1, 1, 1, 1, 31, 31, 31, 5], "slow-host"),  # the last rank is slow for another reason
        ([None] * 8, "slow-host"),
    ],
)
def test_a_host_whose_ranks_all_wait_for_input_is_not_slow(waits: list[float | None], reason: str) -> None:
    times = {4: 130, 5: 130, 6: 130, 7: 130}
    [finding] = found(times, host=HOSTS, columns={"data_wait": waits})
    assert (finding.id, finding.subject) == (reason, Subject(ranks=(4, 5, 6, 7), hosts=("b",)))
    assert finding.gain == PredictedGain(140, pytest.approx(110))


# -- frequency --------------------------------------------------------------------------------------------------------


def readings(values: Sequence[float], **more: Any) -> list[dict[str, Any]]:
    return [{"rank": rank, "name": "AI Core Freq", "value": value, **more} for rank, value in enumerate(values)]


@pytest.mark.parametrize(
    ("counters", "amount", "detail"),
    [
        (readings([1800] * 3 + [1745.9]), "1,746 MHz", "1,800 MHz"),  # 0.97 · 1,800 = 1,746
        (readings([1800] * 3 + [1746]), "20 %", None),
        (readings([1800] * 3 + [900]) + readings([1000, 2000, 1800, 1100]), "1,000 MHz", "1,800 MHz"),  # means
        (readings([1800] * 3 + [1500]) + readings([0] * 4), "1,500 MHz", "1,800 MHz"),  # 0: asleep
        (readings([1800] * 4) + readings([1, 1, 1, 0.1], name="AI Core Freq of another"), "20 %", None),
        (readings([1800] * 3), "20 %", None),
        ([{"rank": 3, "name": "AI Core Freq", "value": 900}], "20 %", None),
    ],
)
def test_a_clock_clearly_below_the_others(counters: list[dict[str, Any]], amount: str, detail: str | None) -> None:
    [finding] = found({3: 120}, 4, tables={"counters": counters})
    assert finding.id == ("frequency-drop" if detail else "slow-rank")
    assert str(finding.amount) == amount and (finding.detail and str(finding.detail)) == detail


def test_ranks_with_the_same_clock_make_one_finding() -> None:
    counters = readings([1800, 1200, 1200, 1000, 1800, 1800, 1800, 1800])
    assert amounts(found({1: 120, 2: 130, 3: 140}, tables={"counters": counters})) == {
        ("frequency-drop", (3,)): "1,000 MHz",
        ("frequency-drop", (1, 2)): "1,200 MHz",
    }


# -- one operator -----------------------------------------------------------------------------------------------------


def kernels(mine: Mapping[str, float], types: str = "ABCDEFGH", times: int = 1, rank: int = 3) -> list[dict[str, Any]]:
    """Four ranks run each of these types once per step, in 10 ms; `rank` takes as long as `mine` says for some."""
    return [
        {
            "rank": each,
            "step": step,
            "type": kind,
            "core": "AI_CORE",
            "duration": round((mine.get(kind, 10) if each == rank else 10) * MS),
        }
        for each in range(4)
        for step in (1, 2, 3, 4)
        for kind in types
        for _ in range(times)
    ]


@pytest.mark.parametrize(
    ("mine", "types", "operator"),
    [
        ({"A": 40}, "ABCDEFGH", "A"),
        ({}, "ABCDEFGH", None),
        # It explains half of the 30 ms that the rank needs longer.
        ({"A": 25.1}, "ABCDEFGH", "A"),
        ({"A": 24.9}, "ABCDEFGH", None),
        # It holds 0.7 of what kernels take longer, 21 of 30 ms; faster kernels do not count against it.
        ({"A": 31, "B": 18.9}, "ABCDEFGH", "A"),
        ({"A": 31, "B": 19.1}, "ABCDEFGH", None),
        ({"A": 31, "B": 19.1, "C": 5}, "ABCDEFGH", None),
        ({"B": 40, "A": 11}, "ABCDEFGH", "B"),
        # At most a quarter of the types are slower, by 5 %.
        ({"A": 40, "B": 11, "C": 11}, "ABCDEFGH", None),
        ({"A": 40, "B": 11, "C": 10.4}, "ABCDEFGH", "A"),
        ({"A": 40, "B": 11, "C": 10.6}, "ABCDEFGH", None),
        ({"A": 40, "B": 11}, "ABCDEFG", None),
        ({"A": 40}, "ABC", "A"),
        ({"A": 40, "B": 10.6}, "ABC", None),
    ],
)
def test_one_operator_explains_a_slow_rank(mine: dict[str, float], types: str, operator: str | None) -> None:
    [finding] = found({3: 130}, 4, tables={"kernels": kernels(mine, types)})
    assert finding.id == ("slow-operator" if operator else "slow-rank")
    assert finding.subject == Subject(ranks=(3,), operators=(operator,) if operator else ())


def test_an_operator_that_runs_more_rarely_is_no_reason() -> None:
    rows = kernels({"A": 40}, "ABC") + kernels({}, "B")
    rare = [row for row in rows if row["rank"] != 3 or row["type"] != "B"]
    rare += [row | {"duration": 12 * MS} for row in kernels({}, "B") if row["rank"] == 3]
    [finding] = found({3: 130}, 4, tables={"kernels": rare})
    assert finding.subject.operators == ("A",)


def test_the_numbers_of_a_slow_operator() -> None:
    [finding] = found({3: 130}, 4, tables={"kernels": kernels({"A": 35.123456})})
    assert str(finding.amount) == "251 %"
    assert finding.evidence[0] == MeasuredValue("operator_mean", 35.1235, 10.0, "ms", {"operator": "A"})
    assert finding.evidence[1] == MeasuredValue("self_time", 130.0, 100.0, "ms")


def test_of_several_ranks_the_slowest_operator_is_shown() -> None:
    rows = [row for row in kernels({"A": 40}) if row["rank"] != 2]
    rows += [row for row in kernels({"A": 50}, rank=2) if row["rank"] == 2]
    [finding] = found({2: 130, 3: 140}, 4, tables={"kernels": rows})
    assert finding.subject.ranks == (2, 3) and str(finding.amount) == "400 %"
    assert finding.evidence[0].value == 50 and finding.evidence[1].value == 140


# -- outside computing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"data_wait": [1, 2, 1, 19.1]}, "input-bound"),  # 18.1 of the 30 ms that the rank needs longer: 0.6
        ({"data_wait": [1, 2, 1, 18.9]}, "slow-rank"),
        ({"free": [1, 2, 1, 19.1]}, "host-bound"),
        ({"free": [1, 2, 1, 18.9]}, "slow-rank"),
        ({"free": [1, 2, 1, 20], "preparing": [1, 2, 1, 20]}, "input-bound"),
        ({"free": [1, 2, 1, 20], "preparing": [1, 2, 1, 10]}, "host-bound"),
        ({"free": [1, 2, 1, None]}, "slow-rank"),
    ],
)
def test_time_outside_computing(columns: dict[str, list[float]], reason: str) -> None:
    [finding] = found({3: 130}, 4, columns=columns)
    assert finding.id == reason
    # What it needs longer, 30 ms, as a share of the step of 140 ms; or of what peers need.
    assert str(finding.amount) == ("30 %" if reason == "slow-rank" else "21 %")


def test_the_worst_of_several_ranks_is_shown() -> None:
    waits = [0, 0, 0, 0, 0, 0, 30, 40]
    [finding] = found({6: 130, 7: 140}, columns={"data_wait": waits})
    assert finding.subject.ranks == (6, 7)
    assert isinstance(finding.amount, Quantity) and finding.amount.value == pytest.approx(100 * 40 / 150)
    assert finding.evidence[0].value == 140
