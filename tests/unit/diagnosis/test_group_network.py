"""Components of the network from whole collectives, where no links were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from paceline.diagnosis.finding import DirectedLink, Subject
from paceline.diagnosis.hardware import Hardware, default_hardware
from paceline.diagnosis.rule_finding import PredictedGain, RuleFinding
from paceline.diagnosis.rules.links import slow_links
from support.small_cluster import SmallCluster

HOSTS = "aabbccdd"
SIZE = 40_000_000
"""Bytes; of 2 ranks as many are sent by each: 4 ms at 10 GB/s."""
Times = dict[tuple[int, ...], float]


def found(times: Times, *, card: str | None = None, hardware: Hardware | None = None, **more: Any) -> list[RuleFinding]:
    """Ranks 0 … 7 on four hosts compute 100 ms, each group reduces in its time, ms, and all meet; five steps."""
    cluster = SmallCluster(8, host=more.pop("host", HOSTS), card=[card] * 8)
    for _ in range(5):
        cluster.work([100] * 8)
        for group, time in times.items():
            cluster.meet(group, time, group=str(group), **{"bytes": SIZE, **more})
        cluster.meet(range(8), 1, group="end", bytes=8)
        cluster.end_step()
    return slow_links(cluster.context(hardware=hardware))


def pairs(slow: Sequence[tuple[int, int]], time: float = 16) -> Times:
    """Groups of two, one rank on either host, between all pairs of the four hosts."""
    all_pairs = [(0, 2), (4, 6), (1, 4), (3, 6), (0, 7), (3, 5)]
    return {pair: time if pair in slow else 4 for pair in all_pairs}


def test_groups_that_have_one_host_in_common_share_its_network_card() -> None:
    [finding] = found(pairs([(0, 2), (3, 6), (3, 5)]))
    assert finding.id == "slow-nic" and finding.severity == "high"
    assert finding.subject == Subject(ranks=(2, 3), hosts=("b",))
    assert (str(finding.amount), str(finding.detail)) == ("2.5 GB/s", "10.0 GB/s")
    assert finding.confidence > 0.9
    assert [(each.key, each.value) for each in finding.evidence] == [("group_bandwidth", 2.5), ("slow_groups", 3)]
    # Ranks 4 and 6, 3 and 6, 3 and 5 follow each other: 4 + 16 + 16 ms, then 4 + 4 + 4.
    assert finding.gain == PredictedGain(137, pytest.approx(113))


def test_groups_between_two_halves_share_a_switch() -> None:
    [finding] = found(pairs([(1, 4), (3, 6), (0, 7), (3, 5)]))
    assert (finding.id, finding.area) == ("slow-network", "cut")
    assert finding.subject.hosts == ("a", "b")


def test_one_group_between_hosts_whose_others_are_healthy() -> None:
    times = {(0, 2): 16.0, (1, 3): 4.0, (4, 6): 4.0, (5, 7): 4.0}
    [finding] = found(times)
    assert finding.id == "slow-link"
    assert finding.subject == Subject(ranks=(0, 2), hosts=("a", "b"), links=(DirectedLink(0, 2, ""),))


def test_one_group_of_several_ranks_per_host_names_both_hosts() -> None:
    """As of experts: nothing tells the cards of either host from what lies between."""
    [finding] = found({(0, 1, 2, 3): 24.0, (4, 5, 6, 7): 6.0})
    assert (finding.id, finding.subject) == ("slow-nic", Subject(hosts=("a", "b")))
    assert [each.key for each in finding.evidence[2:]] == ["same_nic", "same_pair", "same_card"]


def test_what_nothing_can_be_compared_with_is_repaired_by_the_same_factor() -> None:
    """All ranks reduce in 40 ms, of which the slow card makes 30."""
    [finding] = found({(0, 1, 2, 3): 24.0, (4, 5, 6, 7): 6.0, tuple(range(8)): 40.0})
    assert finding.gain == PredictedGain(165, pytest.approx(117))


@pytest.mark.parametrize(
    "times",
    [
        pairs([]),
        pairs([(0, 2), (3, 6), (3, 5)], time=5.5),  # less than half more may be the way
        {(0, 1, 2, 3): 24.0, tuple(range(8)): 24.0},  # one group of a kind has no peers
    ],
)
def test_healthy_groups_are_not_accused(times: Times) -> None:
    assert found(times) == []


def test_small_payloads_tell_nothing() -> None:
    assert found(pairs([(0, 2), (3, 6), (3, 5)]), bytes=900_000) == []


def test_without_hosts_no_card_of_a_host_is_named() -> None:
    assert not [each for each in found(pairs([(0, 2), (3, 6), (3, 5)]), host=[None] * 8) if each.id == "slow-nic"]


EVERYBODY = tuple(range(8))
AT_11 = 2 * 7 / 8 * SIZE / 11e6
"""ms that everybody needs at 11 GB/s."""


@pytest.mark.parametrize(("slower", "is_found"), [(1, False), (1.8, False), (2.6, True), (4, True)])
def test_a_group_of_all_ranks_is_compared_with_the_hardware(slower: float, is_found: bool) -> None:
    findings = found({EVERYBODY: slower * AT_11}, card="NVIDIA A100")
    assert [each.id for each in findings] == (["slow-network"] if is_found else [])
    for finding in findings:
        # No card, pair or switch is told apart, and the profile is not one of this cluster.
        assert (finding.area, finding.subject, finding.severity) == ("fabric", Subject(operators=("RDMA",)), "low")
        assert finding.confidence == 0.5
        assert {each.key for each in finding.evidence} >= {"profile_bandwidth", "side_by_side", "same_nic", "same_cut"}


def test_jobs_without_cards_are_not_compared_with_the_hardware() -> None:
    assert found({EVERYBODY: 4 * AT_11}) == []


def test_a_profile_of_the_user_may_accuse_more() -> None:
    default = default_hardware()
    rdma = replace(default.transports["RDMA"], reached=22.0)
    own = replace(default, transports={**default.transports, "RDMA": rdma})
    [finding] = found({EVERYBODY: 6 * AT_11}, card="NVIDIA A100", hardware=own)
    assert finding.severity == "high" and finding.confidence > 0.75
