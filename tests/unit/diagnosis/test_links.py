"""Links slower than others of their class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from paceline.diagnosis.finding import DirectedLink, Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, RuleFinding
from paceline.diagnosis.rules.links import slow_links
from support.small_cluster import SmallCluster

MB = 1_000_000
RING = [(rank, (rank + 1) % 8) for rank in range(8)]


def on_links(
    rates: Mapping[tuple[int, int], float | Sequence[float]], links: Any = RING, steps: int = 5
) -> list[RuleFinding]:
    """Links that move 10 MB per step at 10 GB/s, or at these rates (in each step); the collective takes 20 ms."""
    cluster = SmallCluster(8, host=["a"] * 4 + ["b"] * 4)
    for _ in range(steps):
        cluster.work([100] * 8)
        cluster.meet(range(8), 20, group="ring")
        cluster.meet(range(8), 10, group="other")
        cluster.end_step()
    transfers = []
    for src, dst in links:
        rate = rates.get((src, dst), 10)
        for step in range(steps):
            now = rate[step] if isinstance(rate, Sequence) else rate
            ends = {"rank": src, "src": src, "dst": dst, "scope": "global", "transport": "HCCS"}
            moved = {"bytes": 10 * MB, "duration": round(10 * MB / now)}
            transfers.append({"step": step + 1, "group": "ring", "name": "allReduce_1", "sequence": 0, **ends, **moved})
    return slow_links(cluster.context(transfers=transfers))


def test_a_slow_link() -> None:
    [finding] = on_links({(3, 4): 5})
    assert finding.id == "slow-link" and finding.min_severity == "low"
    assert finding.subject == Subject(ranks=(3, 4), links=(DirectedLink(3, 4, "HCCS"),), hosts=("a", "b"))
    # The slowest link of the ring needs 2 ms, once repaired 1 ms: the ring takes 19 instead of 20 ms.
    assert finding.gain == PredictedGain(130, pytest.approx(129))
    assert finding.confidence > 0.9
    assert (str(finding.amount), str(finding.detail)) == ("5.0 GB/s", "10.0 GB/s")
    assert finding.evidence == (
        MeasuredValue("bandwidth", 5.0, 10.0, "GB/s"),
        MeasuredValue("slow_links", 1, unit="links"),
        MeasuredValue("data_moved", 50.0, unit="MB"),
        # Of the two links between the hosts only this one leads from a to b.
        MeasuredValue("same_card", 1, unit="links", values={"what": "3"}),
        MeasuredValue("same_card", 1, unit="links", values={"what": "4"}),
        MeasuredValue("same_nic_out", 1, unit="links", values={"what": "a"}),
        MeasuredValue("same_nic_in", 1, unit="links", values={"what": "b"}),
    )


@pytest.mark.parametrize(
    ("rate", "is_found"),
    [
        (7, True),  # 1.43 times as long
        (7.7, False),  # 1.30 times: below MIN_FACTOR
        ((2, 2, 2, 10, 10), True),  # slow in three steps of five
        ((2, 2, 10, 10, 10), False),
    ],
)
def test_a_slow_link_takes_1_35_times_as_long_in_most_steps(rate: Any, is_found: bool) -> None:
    assert bool(on_links({(1, 2): rate})) is is_found


def test_confidence_stays_below_one() -> None:
    [finding] = on_links({(3, 4): 0.01})
    assert finding.confidence == 0.99


def test_both_directions_of_a_cable_are_one_finding_that_of_the_worse() -> None:
    links = RING + [(dst, src) for src, dst in RING]
    found = on_links({(3, 4): 5, (4, 3): 2, (0, 1): 4}, links)
    assert [finding.subject.links for finding in found] == [
        (DirectedLink(4, 3, "HCCS"), DirectedLink(3, 4, "HCCS")),
        (DirectedLink(0, 1, "HCCS"),),
    ]
    assert str(found[0].amount) == "2.0 GB/s"


def test_a_link_to_a_rank_that_recorded_no_step() -> None:
    [finding] = on_links({(8, 9): 4}, [*RING, (8, 9)])
    assert finding.subject.ranks == (8, 9) and finding.subject.hosts == ()


# -- without recorded links -------------------------------------------------------------------------------------------


def in_groups(
    times: Sequence[float],
    *,
    size: int = 2,
    bytes: Sequence[int | None] | int | None = 10 * MB,
    ops: Sequence[str] | None = None,
    hosts: Sequence[str | None] | None = None,
    stages: Sequence[int | None] | None = None,
    send: bool = False,
) -> list[RuleFinding]:
    """Groups of `size` ranks whose collectives take `times` ms, then all meet for 10 ms."""
    ranks = size * len(times)
    cluster = SmallCluster(ranks, host=list(hosts or [None] * ranks), stage=list(stages or [None] * ranks))
    sizes = list(bytes) if isinstance(bytes, Sequence) else [bytes] * len(times)
    for _ in range(2):
        cluster.work([100] * ranks)
        for group, time in enumerate(times):
            members = list(range(size * group, size * group + size))
            if send:
                cluster.send(*members, time, bytes=sizes[group])
            else:
                op = ops[group] if ops else "all_gather"
                cluster.meet(members, time, group=f"g{group}", op=op, bytes=sizes[group])
        cluster.meet(range(ranks), 10, group="all", bytes=1)
        cluster.end_step()
    return slow_links(cluster.context())


def test_a_group_whose_transfers_take_longer() -> None:
    [finding] = in_groups([10, 10, 20, 10], hosts=["b", "a"] * 4)
    assert (finding.id, finding.confidence, finding.min_severity) == ("slow-link", 0.75, "low")  # 2 of 2 transfers
    assert finding.subject == Subject(ranks=(4, 5), links=(DirectedLink(4, 5, ""),), hosts=("a", "b"))
    assert finding.gain == PredictedGain(130, pytest.approx(120))
    assert (str(finding.amount), str(finding.detail)) == ("0.5 GB/s", "1.0 GB/s")  # 10 MB in 20 and 10 ms
    assert finding.evidence == (MeasuredValue("transfer_time", 20.0, 10.0, "ms"),)


@pytest.mark.parametrize(
    ("times", "is_found"),
    [
        ((10, 10, 12.6), True),
        ((10, 10, 12.4), False),
        ((10, 20), False),  # two groups prove nothing
        # The fast half is 10, 10.5 and 11: noise 1.4826 · 0.5 / 10.5, six times that above 10.5 is 14.95.
        ((10, 10.5, 11, 11.5, 12, 15), True),
        ((10, 10.5, 11, 11.5, 12, 14.9), False),
        ((10, 10, 10, 10, 20, 20), True),  # a third of them
        ((10, 10, 10, 10, 20), True),
        ((10, 10, 10, 20, 20), False),
    ],
)
def test_a_slow_group_needs_a_quarter_longer_and_stands_out_of_the_noise(times: Any, is_found: bool) -> None:
    assert bool(in_groups(times)) is is_found


@pytest.mark.parametrize(
    ("changed", "is_found"),
    [
        ({"bytes": MB}, True),
        ({"bytes": MB - 1}, False),  # latency decides
        ({"bytes": [10 * MB, 10 * MB, 10 * MB, 10_800_000]}, True),
        ({"bytes": [10 * MB, 10 * MB, 10 * MB, 11 * MB]}, False),  # log2 · 4 is 93.01 for 10 MB, 93.56 for 11 MB
        ({"bytes": [10 * MB, 10 * MB, 10 * MB, 9_200_000]}, True),
        ({"ops": ["all_gather"] * 3 + ["broadcast"]}, False),
        ({"hosts": ["a"] * 8}, True),
        ({"hosts": ["a"] * 7 + ["b"]}, False),  # over another host than the others
        ({"hosts": list("abcdefgh")}, True),
        ({"send": True}, True),
    ],
)
def test_groups_are_compared_that_do_the_same(changed: dict[str, Any], is_found: bool) -> None:
    assert bool(in_groups([10, 10, 10, 20], **changed)) is is_found


def test_spans_of_two_and_more_hosts_are_alike() -> None:
    hosts = ["a", "b", "c", *["a", "b", "b"] * 3]
    [finding] = in_groups([20, 10, 10, 10], size=3, hosts=hosts)
    assert finding.subject.ranks == (0, 1, 2)


@pytest.mark.parametrize(
    ("hosts", "links"),
    [
        (["a"] * 9, [(0, 1), (1, 2), (2, 0)]),
        (["a", "a", "b"] * 3, [(1, 2), (2, 0)]),  # only what crosses hosts
        ([None] * 9, [(0, 1), (1, 2), (2, 0)]),
    ],
)
def test_the_links_of_a_ring_may_be_slow(hosts: Any, links: list[tuple[int, int]]) -> None:
    [finding] = in_groups([20, 10, 10], size=3, hosts=hosts)
    assert [(link.src, link.dst) for link in finding.subject.links] == links


@pytest.mark.parametrize(
    ("times", "stages", "is_found"),
    [
        ((10, 10, 10, 20), [0] * 8, True),
        ((10, 10, 10, 20), [0] * 6 + [1] * 2, False),  # the other stage may move more
        ((10, 10, 10, 20), [0, 1] * 4, True),
        ((10, 10, 10, 40.1), [0] * 6 + [1] * 2, True),  # nobody has four times as much to move
        ((10, 10, 10, 39.9), [0] * 6 + [1] * 2, False),
        ((0.19, 0.19, 0.19, 0.5), [0] * 8, False),  # shorter than 0.2 ms: latency
        ((0.21, 0.21, 0.21, 0.5), [0] * 8, True),
    ],
)
def test_where_sizes_are_unknown_a_stage_may_move_more(times: Any, stages: list[int], is_found: bool) -> None:
    found = in_groups(times, bytes=None, stages=stages)
    assert bool(found) is is_found
    if found:
        assert str(found[0].amount) == f"{times[-1]:.2f} ms" and str(found[0].detail) == f"{times[0]:.2f} ms"


def test_all_slow_collectives_of_a_group_are_one_finding() -> None:
    cluster = SmallCluster(6)
    for _ in range(2):
        cluster.work([100] * 6)
        for group in range(3):
            members = [2 * group, 2 * group + 1]
            cluster.meet(members, 20 if group == 1 else 10, group=f"g{group}", op="all_gather", bytes=10 * MB)
            cluster.meet(members, 60 if group == 1 else 20, group=f"g{group}", op="all_to_all", bytes=30 * MB)
        cluster.meet(range(6), 10, group="all", bytes=1)
        cluster.end_step()
    [finding] = slow_links(cluster.context())
    # Both at the speed of the others: 100 + 10 + 20 + 10 instead of 190 ms; the one that lost more is shown.
    assert finding.gain == PredictedGain(190, pytest.approx(140))
    assert finding.evidence == (MeasuredValue("transfer_time", 60.0, 20.0, "ms"),)
    assert str(finding.amount) == "0.5 GB/s"


def test_ranks_that_never_meet_share_no_links() -> None:
    cluster = SmallCluster(1)
    cluster.work([100])
    cluster.end_step()
    assert slow_links(cluster.context()) == []
