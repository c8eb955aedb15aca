"""What links should need for their messages, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.diagnosis.hardware import TransportProfile
from paceline.metrics.network.link_model import (
    HARDWARE,
    MODEL_ERROR,
    PEERS,
    RUN,
    Line,
    LinkExcess,
    fit_line,
    link_excess,
)
from paceline.metrics.network.link_traffic import group_traffic, link_traffic
from support.fake_run import FakeRun
from support.transfers import moved

MB = 1_000_000
RDMA = TransportProfile(12.5, 524_288, 10.0, 10.0)


def run_of(*transfers: dict[str, Any], packets: Any = (), groups: Any = ()) -> FakeRun:
    return FakeRun(transfers=list(transfers), packets=list(packets), groups=list(groups))


def excess_of(run: FakeRun, hosts: dict[int, str | None] | None = None, **profiles: TransportProfile) -> LinkExcess:
    return link_excess(link_traffic(run, "true"), hosts or {}, profiles)


def packets(rank: int, size: int, count: int, group: str = "g") -> dict[str, Any]:
    names = {"rank": rank, "step": 1, "group": group, "name": "x", "transport": "RDMA"}
    return {**names, "packet_bytes": size, "count": count, "duration": 1}


# -- the line of a class ------------------------------------------------------------------------------------------------


def test_latency_and_bandwidth_from_messages_of_several_sizes() -> None:
    sizes = np.array([1e5, 4e5, 2e6, 8e6])
    line = fit_line(sizes, 7_000 + sizes / 11.5, 0)
    assert (line.alpha, line.beta) == pytest.approx((7_000, 11.5))


def test_one_odd_size_does_not_move_the_line() -> None:
    sizes = np.array([1e5, 2e5, 4e5, 2e6, 8e6])
    times = 7_000 + sizes / 10
    times[2] *= 3
    line = fit_line(sizes, times, 0)
    assert line.beta == pytest.approx(10) and line.alpha == pytest.approx(7_000)


def test_with_messages_of_one_size_the_latency_is_the_known_one() -> None:
    # 1 MB in 110 µs, 10 of them latency.
    line = fit_line(np.array([1e6]), np.array([110_000.0]), 10_000)
    assert (line.alpha, line.beta) == pytest.approx((10_000, 10))
    # More latency than time: at least a fifth of the time moves bytes.
    assert fit_line(np.array([1e3]), np.array([5_000.0]), 10_000).beta == pytest.approx(1)


def test_the_time_of_a_message() -> None:
    assert Line(5_000, 10).time(1e6) == 105_000 and Line(5_000, 10).cost(1e6) == pytest.approx(0.105)


# -- traffic ------------------------------------------------------------------------------------------------------------


def test_a_link_has_a_row_for_each_kind_of_message() -> None:
    traffic = link_traffic(
        run_of(
            *(moved(0, 1, 4 * MB, time, name="x") for time in (400_000, 500_000, 800_000)),
            moved(0, 1, MB, 300_000, name="x"),
            moved(0, 1, MB - 1, 300_000, name="y"),
        ),
        "true",
    )
    assert traffic.bytes.tolist() == [MB, 12 * MB] and traffic.kinds == 2
    # The middle of 0.1, 0.125 and 0.2 ns per byte; quartiles 0.1125 and 0.1625.
    assert traffic.cost[1] == pytest.approx(0.125) and traffic.executions[1] == 3
    assert traffic.scatter[1] == pytest.approx(0.05 / 1.349 / 0.125)
    assert np.isnan(traffic.message).all() and traffic.execution.tolist() == [MB, 4 * MB]


def test_packets_tell_the_size_of_a_message() -> None:
    run = run_of(moved(0, 1, 8 * MB, 800_000, rank=0), packets=[packets(0, MB, 6), packets(0, 2 * MB, 1)])
    assert link_traffic(run, "true").message.tolist() == [pytest.approx(8 * MB / 7)]


def test_sums_have_the_messages_of_their_operator() -> None:
    rows = [{**packets(0, MB, 4), "name": "hcom_allReduce__1"}, {**packets(0, 4 * MB, 1), "name": "hcom_allGather__1"}]
    run = run_of(moved(0, 1, 8 * MB, 800_000, rank=0, name="allreduce-total"), packets=rows)
    traffic = link_traffic(run, "true")
    assert traffic.message.tolist() == [MB] and traffic.op.tolist() == ["allreduce"]


def test_links_of_the_groups_that_use_a_link() -> None:
    run = run_of(
        moved(0, 1, MB, 10, group="a"),
        moved(1, 2, MB, 20, group="a"),
        moved(0, 1, MB, 5, group="a"),
        moved(2, 3, MB, 30, group="b"),
        moved(1, 1, MB, 30, group="a"),
    )
    assert group_traffic(run, "true", [(0, 1)]) == [("a", "x", 0, 1, "RDMA", 15), ("a", "x", 1, 2, "RDMA", 20)]


# -- references ---------------------------------------------------------------------------------------------------------


def test_few_links_are_compared_with_the_fastest() -> None:
    found = excess_of(run_of(moved(0, 1, MB, 100_000), moved(1, 2, MB, 400_000)))
    assert found.source.tolist() == [PEERS, PEERS]
    assert np.exp(found.excess).tolist() == pytest.approx([1, 4])
    assert found.deviation.tolist() == pytest.approx([MODEL_ERROR, MODEL_ERROR])


def test_six_links_and_more_are_compared_with_the_fastest_fifth() -> None:
    times = [80_000, *[100_000] * 8, 300_000]
    found = excess_of(run_of(*(moved(n, n + 1, MB, time) for n, time in enumerate(times))))
    # The quantile 0.2 of ten lies 0.8 of the way from the second to the third.
    assert 1 / found.reference[0] == pytest.approx(10) and np.exp(found.excess[-1]) == pytest.approx(3)


def test_the_spread_of_fast_links_and_scatter_over_executions_are_noise() -> None:
    rows = [moved(n, n + 1, MB, 100_000 * time) for n, time in enumerate((1.0, 1.1, 1.21, 1.331, 2, 2))]
    found = excess_of(run_of(*rows))
    # The fast half lies at 0, 9.5 and 19.1 %: its deviation from the middle is 1.4826 · ln 1.1.
    assert found.deviation[0] == pytest.approx(np.hypot(MODEL_ERROR, 1.4826 * np.log(1.1)), rel=1e-6)
    steps = [
        moved(n, n + 1, MB, time, step=step) for n in range(3) for step, time in enumerate((90_000, 100_000, 110_000))
    ]
    scatter = 10_000 / 1.349 / 100_000
    assert excess_of(run_of(*steps)).deviation[0] == pytest.approx(np.hypot(MODEL_ERROR, scatter / np.sqrt(3)))


@pytest.mark.parametrize(("time", "source"), [(197_000, PEERS), (199_000, RUN)])
def test_another_kind_of_message_is_a_reference_where_it_is_far_faster(time: int, source: int) -> None:
    """10 GB/s and 10 µs elsewhere: 1 MB should take 110 µs; RUN_GAP is 1.8: 198 µs."""
    rows = [
        *(moved(n, n + 1, 4 * MB, 410_000, name="y") for n in range(3)),
        *(moved(n, n + 1, MB, time) for n in range(3)),
    ]
    found = excess_of(run_of(*rows))
    assert set(found.source[found.traffic.bytes == MB].tolist()) == {source}
    if source == RUN:
        assert np.exp(found.excess[found.traffic.bytes == MB]) == pytest.approx(time / 110_000)


@pytest.mark.parametrize(("time", "source"), [(219_000, PEERS), (221_000, HARDWARE)])
def test_the_profile_is_a_reference_where_everything_is_slower_than_half_of_it(time: int, source: int) -> None:
    """10 µs and 10 GB/s: 1 MB should take 110 µs."""
    found = excess_of(
        run_of(moved(0, 1, MB, time), moved(1, 0, MB, time), packets=[packets(n, MB, 1) for n in (0, 1)]), RDMA=RDMA
    )
    assert set(found.source.tolist()) == {source}


def test_messages_that_were_not_recorded_are_taken_for_those_of_a_ring() -> None:
    """4 MB of an all-reduce of three ranks go in four messages of 1 MB: four latencies."""
    groups = [{"group": "g", "rank": rank, "index": rank} for rank in range(3)]
    rows = [moved(n, (n + 1) % 3, 4 * MB, 900_000, name="allReduce_1") for n in range(3)]
    found = excess_of(run_of(*rows, groups=groups), RDMA=RDMA)
    assert found.reference.tolist() == pytest.approx([0.11] * 3)


# -- hosts --------------------------------------------------------------------------------------------------------------


def test_links_between_hosts_are_a_class_of_their_own() -> None:
    rows = [moved(0, 1, MB, 50_000, transport="HCCS"), moved(1, 2, MB, 100_000, transport="HCCS")]
    found = excess_of(run_of(*rows), {0: "a", 1: "a", 2: "b"})
    assert found.crosses.tolist() == [False, True] and set(found.lines) == {("HCCS", False), ("HCCS", True)}
    assert found.hosts == ("a", "b") and found.host_ranks == ((0, 1), (2,)) and found.excess.tolist() == [0, 0]


def test_without_names_ranks_joined_by_other_than_network_links_are_a_host() -> None:
    rows = [
        *(moved(a, b, MB, 50_000, transport="HCCS") for a, b in ((0, 1), (2, 3))),
        *(moved(a, b, MB, 100_000) for a, b in ((1, 2), (3, 4), (4, 0))),
    ]
    found = excess_of(run_of(*rows), dict.fromkeys(range(5)))
    assert found.hosts == (None, None, None) and found.host_ranks == ((0, 1), (2, 3), (4,))
    assert found.crosses.tolist() == [False, False, True, True, True]
