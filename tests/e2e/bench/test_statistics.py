"""Spread, outliers, baselines and scaling: numbers worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from paceline.bench.provenance import busy_machine_warning
from paceline.bench.result import Measurement, ProfilePart, Repetition, SpreadPart
from paceline.bench.spread import odd_values, slow_values, spread
from paceline.bench.statistics.baseline import compare
from paceline.bench.statistics.outliers import find_outliers
from paceline.bench.statistics.scaling import scaling_losses, with_efficiency
from paceline.bench.statistics.stragglers import outlier_name
from paceline.core.errors import UsageError
from support.bench.result_trees import a_result, vars_of


def repetition(*cards: float) -> Repetition:
    return Repetition(
        job_id="j",
        throughput=sum(cards),
        accuracy=None,
        throughput_list=(sum(cards),),
        accuracy_list=(),
        cards=(cards,),
    )


def size(ranks: int, throughput: float, step: float = 0, **shares: float) -> Measurement:
    profile = ProfilePart(source="p", step_ms=step, shares=shares, diagnosis=None) if step else None
    part = SpreadPart(**vars_of(spread([throughput])))
    return Measurement(
        ranks=ranks,
        nodes=1,
        per_rank=throughput / ranks,
        throughput=part,
        accuracy=None,
        repetitions=(),
        profile=profile,
    )


def test_spread_is_mean_and_sample_deviation() -> None:
    found = spread([98.0, 100.0, 102.0])
    assert (found.mean, found.deviation, found.least, found.most) == (100.0, 2.0, 98.0, 102.0)
    assert spread([5.0]).deviation is None


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ([100, 100], []),
        ([100, 80], [1]),
        ([100, 99, 100.5, 99.5], []),
        ([100, 99, 80, 99.5, 100.5, 99.8, 70, 100.1], [6, 2]),
        ([80, 80, 100, 100], [0, 1]),
        ([100, 98.5], []),
        ([5], []),
    ],
)
def test_slow_cards_are_found_among_two_and_among_several_culprits(values: list[float], slow: list[int]) -> None:
    assert [each.place for each in slow_values(values)] == slow


def test_odd_repetitions_need_three_to_tell() -> None:
    assert odd_values([100, 50]) == []
    assert [each.place for each in odd_values([100, 101, 140, 99, 100])] == [2]


def test_a_rank_that_is_slow_once_in_three_runs_is_no_outlier_and_twice_is_one() -> None:
    fast, slow = (10.0, 10.0, 10.0, 10.0), (10.0, 10.0, 8.0, 10.0)
    once = find_outliers([repetition(*fast), repetition(*slow), repetition(*fast)])
    assert [(each.kind, each.name) for each in once] == [("run", "2")]
    found = find_outliers([repetition(*slow), repetition(*slow), repetition(*fast)])
    assert [(each.kind, each.name, each.runs) for each in found] == [("rank", "2", 2), ("run", "3", 1)]
    assert found[0].percent == pytest.approx(-20) and (found[0].node, found[0].card) == (None, 2)


def test_an_outlier_of_several_nodes_is_a_card_of_a_node() -> None:
    one = repetition(10.0)
    both = [msgspec.structs.replace(one, cards=((10.0, 10.0), (10.0, 6.0))) for _ in range(2)]
    node, card = find_outliers(both)
    assert (node.kind, node.node, node.card) == ("node", 1, None)
    assert (card.kind, card.name, card.node, card.card) == ("rank", "node 1 card 1", 1, 1)
    assert outlier_name(card, "zh") == "节点 1 卡 1" and outlier_name(node, "zh") == "1"


def test_noise_from_run_to_run_is_no_slow_rank() -> None:
    """The second of two is the lower one by 3 % in two of three runs, and each varies by as much from run to run."""
    noisy = [repetition(100, 97), repetition(97, 99), repetition(101, 97.5)]
    assert [each.kind for each in find_outliers(noisy) if each.kind == "rank"] == []
    # s = 0.5, t = (100 - 95) / (0.5 · √(2 / 3)) = 12.2 with 2 degrees of freedom: 0.3 %
    steady = [repetition(100, 95), repetition(100.5, 95.5), repetition(99.5, 94.5)]
    assert [(each.kind, each.name, each.runs) for each in find_outliers(steady)] == [("rank", "1", 3)]
    assert [each.name for each in find_outliers([repetition(100, 96)])] == ["1"]


def test_baseline_takes_noise_into_account() -> None:
    before = a_result((100.0, 101.0, 99.0))
    assert [each.verdict for each in compare(a_result((97.0, 98.0, 99.0)), before, "b")] == ["same"]
    assert [each.verdict for each in compare(a_result((90.0, 91.0, 92.0)), before, "b")] == ["worse"]
    assert [each.verdict for each in compare(a_result((110.0, 111.0, 109.0)), before, "b")] == ["better"]
    # ± 20 % noise hides what would be a clear loss otherwise.
    assert [each.verdict for each in compare(a_result((60.0, 90.0, 120.0)), before, "b")] == ["same"]
    # t(4) = 2.776, sqrt(1/3 + 1/3) = 0.8165
    assert compare(a_result((90.0, 91.0, 92.0)), before, "b")[0].noise == pytest.approx(2.776 * 0.8165, rel=1e-3)


def test_single_runs_differ_only_beyond_three_per_cent() -> None:
    assert compare(a_result((97.5,)), a_result((100.0,)), "b")[0].verdict == "same"
    assert compare(a_result((96.0,)), a_result((100.0,)), "b")[0].verdict == "worse"


def test_baseline_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the baseline has 8 rank"):
        compare(a_result(ranks=4), a_result(ranks=8), "b.json")


def test_efficiency_is_throughput_per_rank_against_the_smallest() -> None:
    found = with_efficiency([size(1, 100), size(2, 180), size(4, 240)])
    assert [each.efficiency for each in found] == [1.0, 0.9, 0.6]
    assert with_efficiency([size(4, 240)])[0].efficiency is None


def test_loss_is_explained_by_the_parts_that_grew() -> None:
    alone = size(1, 10, 100.0, compute=1.0)
    crowded = size(4, 20, 200.0, compute=0.75, exposed=0.05, waiting=0.2)
    (found,) = scaling_losses(with_efficiency([alone, crowded]), cores=2)
    assert found.grown_ms == {"compute": 50.0, "exposed": 10.0, "waiting": 40.0}
    assert found.sentences == (
        "4 ranks: 50 % of the throughput per rank of 1; recorded step 200.0 ms, with 1 rank 100.0 ms",
        "100.0 ms more per step: computing +50.0, waiting for other ranks +40.0, exposed communication +10.0",
        "the same computing takes 1.5 times as long: 4 ranks share the 2 cores of this host",
    )
    assert "共用本机 2 个核" in found.sentences_zh[2]


def test_waiting_and_communication_are_not_blamed_on_cores() -> None:
    (found,) = scaling_losses([size(1, 10, 100.0, compute=1.0), size(2, 10, 200.0, compute=0.5, exposed=0.5)], cores=1)
    assert found.grown_ms == {"exposed": 100.0}
    assert not any("cores" in line for line in found.sentences)
    assert scaling_losses([size(1, 10), size(2, 20)], cores=2) == ()


def test_results_survive_writing_and_reading() -> None:
    result = a_result((1.0, 2.0))
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result


def test_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("os.getloadavg", lambda: (2.9, 0.0, 0.0))
    assert busy_machine_warning() is None
    monkeypatch.setattr("os.getloadavg", lambda: (9.04, 0.0, 0.0))
    assert "(load 9.0 on 4 cores)" in str(busy_machine_warning())
