"""Self time, reference and excess of ranks, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.peers import excess_over_peers
from paceline.metrics.rank_performance import RankPerformance, median_place, rank_performance
from support.fake_run import FakeRun

MS = 1_000_000
NAN = np.nan


def made(self_times: list[list[float]], **ranks: object) -> FakeRun:
    """Ranks × steps; every step lasts 1,000 ms, what is no self time is exposed communication."""
    rows = [
        {"rank": rank, "step": number, "duration": 1000 * MS, "exposed": round((1000 - time) * MS)}
        for rank, times in enumerate(self_times)
        for number, time in enumerate(times)
        if not np.isnan(time)
    ]
    return FakeRun(ranks=[{"rank": rank, **more(rank, ranks)} for rank in range(len(self_times))], steps=rows)


def more(rank: int, columns: dict[str, object]) -> dict[str, object]:
    return {name: values[rank] for name, values in columns.items()}  # type: ignore[index]


def test_the_reference_is_the_median_of_the_fast_half_and_the_excess_divides_by_it() -> None:
    performance = RankPerformance(made([[100, 104], [102, 100], [130, 134], [131, 131]]))
    means = performance.rank_means.numbers
    # The fast half are ranks 0 and 1: 101 and 102 in the two steps.
    assert means["reference"].tolist() == [101.5] * 4
    assert means["self_time"].tolist() == [102, 101, 132, 131]
    assert means["excess"] == pytest.approx(means["self_time"] / means["reference"] - 1)
    rows = performance.rank_steps.numbers
    assert rows["reference"].reshape(4, 2).tolist() == [[101, 102]] * 4
    assert rows["excess"] == pytest.approx(rows["self_time"] / rows["reference"] - 1)


def test_half_of_the_peers_may_be_slow() -> None:
    excess = RankPerformance(made([[100] * 3, [100] * 3, [130] * 3, [130] * 3])).excess
    assert excess.per_rank == pytest.approx([0, 0, 0.3, 0.3])
    assert excess.persistent() == [2, 3]


def test_the_reference_of_a_rank_is_that_of_the_steps_it_recorded() -> None:
    values = np.array([[100.0, 200.0, 300.0], [NAN, 220.0, 330.0]])
    excess = excess_over_peers(values, ((0, 1),))
    assert excess.median_reference.tolist() == [200, 250] and excess.median_value.tolist() == [200, 275]
    assert excess.per_rank == pytest.approx([0, 0.1])


def test_ranks_of_other_stages_and_programs_are_no_peers() -> None:
    run = made([[100], [200], [100], [300]], stage=[0, 1, 0, 0])
    calls = [{"rank": 3, "step": 0, "op": "all_gather", "start": 0, "duration": 1}]
    performance = RankPerformance(FakeRun(ranks=_rows(run, "ranks"), steps=_rows(run, "steps"), collectives=calls))
    assert performance.peer_groups == ((0, 2), (1,), (3,))
    assert np.isnan(performance.excess.per_rank[[1, 3]]).all()


def _rows(run: FakeRun, table: str) -> list[dict[str, object]]:
    relation = run.sql(f"SELECT * FROM {table}")
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def test_a_host_shows_the_numbers_of_its_median_rank() -> None:
    run = made([[100], [101], [130], [131], [140]], host=["a", "a", "b", "b", "b"])
    hosts = RankPerformance(run).host_means
    means = RankPerformance(run).rank_means.numbers
    assert hosts.texts["host"] == ["a", "b"]
    assert hosts.numbers["median_rank"].tolist() == [1, 3] and hosts.numbers["worst_rank"].tolist() == [1, 4]
    assert hosts.numbers["excess"].tolist() == [means["excess"][1], means["excess"][3]]
    assert hosts.numbers["ranks"].tolist() == [2, 3] and hosts.numbers["duration"].tolist() == [1000, 1000]
    assert median_place(np.array([1.0, 3.0, 2.0]), [0, 1, 2]) == 2


def test_without_exposed_communication_the_timeline_tells_self_time() -> None:
    calls = [
        {
            "rank": rank,
            "step": 1,
            "op": "all_reduce",
            "group": "g",
            "sequence": 0,
            "start": start * MS,
            "duration": long * MS,
        }
        for rank, start, long in ((0, 60, 40), (1, 80, 20))
    ]
    steps = [{"rank": rank, "step": 1, "start": 0, "end": 110 * MS, "duration": 110 * MS} for rank in (0, 1)]
    performance = RankPerformance(FakeRun(ranks=[{"rank": 0}, {"rank": 1}], steps=steps, collectives=calls))
    assert (performance.self_time / MS).tolist() == [[70], [90]]  # before and after the collective
    assert performance.excess.per_rank == pytest.approx([0, 90 / 70 - 1])


def test_it_is_worked_out_once_per_run_and_choice_of_steps() -> None:
    run = made([[100, 100], [100, 100]])
    assert rank_performance(run) is rank_performance(run) is rank_performance(run, (0, 1))
    assert rank_performance(run, (1,)).steps.tolist() == [1]


def test_extremes_of_each_step() -> None:
    rows = [
        {"rank": rank, "step": 7, "duration": 100 * MS, "computing": time * MS, "exposed": 0}
        for rank, time in enumerate((30, 50, 40))
    ]
    table = RankPerformance(FakeRun(ranks=[{"rank": rank} for rank in range(3)], steps=rows)).step_times.numbers
    assert {name: column.tolist() for name, column in table.items()} == {
        "step": [7],
        "step_min": [100],
        "step_median": [100],
        "step_max": [100],
        "compute_min": [30],
        "compute_median": [40],
        "compute_max": [50],
        "slowest": [1],
    }
    assert RankPerformance(FakeRun()).step_times.length == 0


def call(rank: int, start: float, end: float, sequence: int = 0, **more: object) -> dict[str, object]:
    times = {"start": round(start * MS), "duration": round((end - start) * MS)}
    return {"rank": rank, "op": "all_reduce", "group": "g", "sequence": sequence, **times, **more}


def test_each_rank_has_a_peer_group_and_a_number_of_steps() -> None:
    peers = RankPerformance(made([[100, 100], [100, NAN], [100, 100]], stage=[0, 1, 0])).rank_peers.numbers
    assert {name: column.tolist() for name, column in peers.items()} == {
        "rank": [0, 1, 2],
        "peer_group": [0, 1, 0],
        "steps": [2, 1, 2],
    }


def test_the_cluster_is_the_mean_of_its_ranks() -> None:
    mean = RankPerformance(made([[100, 100], [300, 500]])).cluster_mean.numbers
    assert (mean["duration"].tolist(), mean["exposed"].tolist(), mean["free"].tolist()) == ([1000], [750], [250])
    assert RankPerformance(FakeRun()).cluster_mean.length == 0


def test_steps_without_a_number_are_those_of_events_without_one() -> None:
    steps = [{"rank": rank, "duration": 50 * MS} for rank in (0, 1)]
    calls = [call(0, 0, 10), call(0, 40, 50, 1), call(1, 5, 10), call(1, 45, 50, 1)]
    performance = RankPerformance(FakeRun(steps=steps, collectives=calls))
    rows = performance.rank_steps.numbers
    assert performance.steps.tolist() == [0] and np.isnan(rows["step"]).all() and rows["steady"].tolist() == [1, 1]
    assert rows["self_time"].tolist() == [30, 35] and rows["excess"] == pytest.approx([0, 35 / 30 - 1])
    assert performance.step_times.length == 0


def test_ranks_that_only_have_events_are_ranks_without_means() -> None:
    run = made([[100, 100], [100, 100]])
    run.connection.execute("INSERT INTO collectives (rank, step, op, start, duration) VALUES (5, 1, 'barrier', 0, 1)")
    run.connection.execute("INSERT INTO collectives (rank, step, op, duration) VALUES (6, 1, 'barrier', 1)")
    performance = RankPerformance(run)
    assert performance.ranks.tolist() == [0, 1, 5] and performance.rank_means.numbers["rank"].tolist() == [0, 1]
    assert performance.rank_means.numbers["steps"].tolist() == [2, 2]


def test_a_program_is_what_a_rank_does_per_step_it_recorded() -> None:
    run = made([[100, 100, 100], [100, 100, NAN], [100, 100, 100]])
    calls = [call(rank, 0, 1, n, step=n % 3) for rank in (0, 2) for n in range(6)]
    calls += [call(1, 0, 1, n, step=n % 2) for n in range(4)]
    calls += [call(2, 2, 3, n, step=n) for n in range(3)]
    performance = RankPerformance(
        FakeRun(ranks=_rows(run, "ranks"), steps=_rows(run, "steps"), collectives=calls), (0, 1, 2)
    )
    assert performance.peer_groups == ((0, 1), (2,))  # two calls per step, and three


@pytest.mark.parametrize(("declared", "stages"), [([None, None], [0, 1]), ([1, 0], [1, 0]), ([None, 3], [-1, 3])])
def test_stages_are_those_declared_or_those_that_messages_show(declared: list[int | None], stages: list[int]) -> None:
    calls = [call(0, 10, 20, op="send", step=1), call(1, 10, 20, op="receive", step=1)]
    ranks = [{"rank": rank, "stage": stage} for rank, stage in enumerate(declared)]
    assert RankPerformance(FakeRun(ranks=ranks, collectives=calls)).stages.tolist() == stages


def test_hosts_without_a_name_or_without_peers() -> None:
    hosts = RankPerformance(made([[100], [200], [300]], host=[None, "a", "a"], stage=[0, 1, 2])).host_means
    assert hosts.texts["host"] == ["", "a"] and hosts.numbers["worst_rank"].tolist() == [0, 1]
    assert np.isnan(hosts.numbers["excess"]).all() and hosts.numbers["exposed"].tolist() == [900, 750]


def test_a_rank_without_peers_is_neither_the_median_nor_the_worst_of_its_host() -> None:
    hosts = RankPerformance(made([[500], [100], [110]], host=["a"] * 3, stage=[1, 0, 0])).host_means.numbers
    assert hosts["median_rank"].tolist() == [1] and hosts["worst_rank"].tolist() == [2]
    assert hosts["worst_excess"] == pytest.approx([0.1]) and hosts["self_time"].tolist() == [100]


def test_extremes_are_of_steps_that_count_and_covered_communication_is_computing() -> None:
    rows = [
        {"rank": rank, "step": n, "duration": (100 + rank) * MS, "computing": (50 - rank) * MS, "overlapped": 20 * MS}
        for rank in (0, 1)
        for n in ((1, 2, 3) if rank else (2, 3))
    ]
    table = RankPerformance(FakeRun(steps=rows)).step_times.numbers
    assert table["step"].tolist() == [2, 3] and table["slowest"].tolist() == [0, 0]
    assert table["compute_max"].tolist() == [50, 50] and table["compute_min"].tolist() == [49, 49]
    assert table["step_min"].tolist() == [100, 100] and table["step_median"].tolist() == [100.5, 100.5]


def test_steps_chosen_in_any_order_are_the_same_choice() -> None:
    run = made([[100, 100, 100], [100, 100, 100]])
    assert rank_performance(run, (2, 0, 1, 1)) is rank_performance(run)
    assert rank_performance(run, (0, 1)) is rank_performance(run, (0, 1)) is not rank_performance(run)
