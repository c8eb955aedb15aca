"""Communication of all ranks: small packets, transfers slowed by computing, exposed gradient communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, RuleFinding
from paceline.diagnosis.rules.communication import bandwidth_contention, comm_exposed, gradient_groups, small_packets
from support.small_cluster import MS, SmallCluster

MB = 1_000_000

# -- small packets: RDMA reaches 11.25 GB/s with packets from 524,288 B on, HCCS 18 with packets from 1 MB on ------


def packet(size: int, count: int, duration: float, transport: str = "RDMA") -> dict[str, Any]:
    return {"transport": transport, "packet_bytes": size, "count": count, "duration": round(duration * MS)}


def link(group: str, transport: str, src: int = 0, dst: int = 1) -> dict[str, Any]:
    return {"group": group, "transport": transport, "src": src, "dst": dst}


def with_packets(*packets: dict[str, Any]) -> list[RuleFinding]:
    """Steps of 140 ms: 20 ms over RDMA, 10 ms over HCCS and 10 ms that leave no device."""
    cluster = SmallCluster(2)
    for _ in range(2):
        cluster.work([100, 100])
        cluster.meet([0, 1], 20, group="between hosts")
        cluster.meet([0, 1], 10, group="in a host")
        cluster.meet([0, 1], 10, group="on a card")
        cluster.end_step()
    transfers = [link("between hosts", "RDMA"), link("in a host", "HCCS"), link("on a card", "RDMA", dst=0)]
    return small_packets(cluster.context(packets=list(packets), transfers=transfers))


def test_most_bytes_move_in_small_packets() -> None:
    [finding] = with_packets(
        packet(123_456, 24, 0.3),
        packet(123_456, 1, 0.1),
        packet(200_000, 10, 0.4),
        packet(MB, 4, 0.7),
        packet(MB, 0, 7),  # no packets
    )
    # 3.0864 + 2 MB of 9.0864 MB are small; 9.0864 MB in 1.5 ms are 6.0576 GB/s, of 11.25: 17.8 µs a packet.
    assert (finding.id, finding.confidence, finding.subject) == (
        "small-packets",
        0.67,
        Subject(operators=("RDMA",)),
    )  # 1 of 1 collective
    assert (str(finding.amount), str(finding.detail)) == ("0.12 MB", "56 %")
    assert finding.evidence == (
        MeasuredValue("packet_size", 0.1235, unit="MB"),
        MeasuredValue("bandwidth", 6.06, 11.25, "GB/s"),
    )
    assert finding.gain == PredictedGain(140, pytest.approx(120 + 20 * 6.0576 / 11.25))
    # No collective tells that its messages could be larger.
    assert finding.max_severity == "low"


@pytest.mark.parametrize(
    ("packets", "is_found"),
    [
        ([packet(100_000, 10, 0.25), packet(MB, 1, 0.1)], True),  # half of the bytes
        ([packet(100_000, 10, 0.25), packet(MB + 1, 1, 0.1)], False),
        ([packet(524_287, 10, 0.65)], True),
        ([packet(524_288, 10, 0.65)], False),
        ([packet(100_000, 10, 0.29)], True),  # 20.1 µs a packet beyond its bytes, three latencies are 21
        ([packet(100_000, 10, 0.30)], False),
        ([packet(300_000, 10, 0.72, "HCCS")], False),  # 55 of 72 µs a packet are latency: the link is slow
        ([packet(200_000, 10, 0.25, "HCCS")], True),
        ([packet(84_374, 100, 1)], True),  # 0.75 · 11.25 GB/s are 8.4375 MB per ms
        ([packet(84_375, 100, 1)], False),
        ([packet(93_750, 1000, 1, "HCCS"), packet(100, 1, 0.02)], True),  # another transport is fast enough
        ([packet(100, 1, 0.02, "SDMA")], False),
        ([packet(100, 1, 0.02, "unknown")], False),
        ([packet(100, 1, 0)], False),
        ([packet(0, 1, 1)], False),
        ([], False),
    ],
)
def test_half_of_the_bytes_in_small_packets_at_three_quarters_of_the_bandwidth(packets: Any, is_found: bool) -> None:
    assert bool(with_packets(*packets)) is is_found


@pytest.mark.parametrize(
    ("rdma", "transport", "fixed"),
    [
        (56_250, "RDMA", 130),  # 5.625 of 11.25 GB/s: 10 of 20 ms less
        (78_750, "HCCS", 133),  # 7.875 GB/s: 6 ms less
    ],
)
def test_the_costliest_transport_stands_for_all(rdma: int, transport: str, fixed: float) -> None:
    # HCCS reaches 5.4 of 18 GB/s, 14 µs a packet beyond its bytes: 7 of 10 ms less.
    [finding] = with_packets(packet(rdma, 100, 1), packet(108_000, 50, 1, "HCCS"))
    assert finding.subject.operators == (transport,) and finding.gain.step_ms_fixed == pytest.approx(fixed)


@pytest.mark.parametrize(("moved", "severity"), [(4 * 500_001, "high"), (4 * 499_999, "low")])
def test_packets_half_as_large_as_what_a_ring_sends_at_once_are_cut(moved: int, severity: str) -> None:
    """An all-reduce of three ranks moves its bytes in four rounds."""
    cluster = SmallCluster(3)
    cluster.work([100, 100, 100])
    cluster.meet([0, 1, 2], 20, group="g", bytes=moved)
    cluster.end_step()
    groups = [{"group": "g", "rank": rank, "index": rank} for rank in range(3)]
    rows = [{**packet(250_000, 10, 0.4), "group": "g"}]
    [finding] = small_packets(cluster.context(packets=rows, groups=groups, transfers=[link("g", "RDMA")]))
    assert finding.max_severity == severity


# -- contention ---------------------------------------------------------------------------------------------------------


def links_at(group: str, rates: Sequence[float], transport: str = "HCCS", size: int = 10 * MB) -> list[dict[str, Any]]:
    """A ring whose links move `size` bytes at these rates (GB/s), in two parts."""
    return [
        {**link(group, transport, src, src + 1), "bytes": size // 2, "duration": round(size / 2 / rate)}
        for src, rate in enumerate(rates)
        for _ in range(2)
    ]


class Contention:
    """A step of 100 ms: groups on side streams from 0 to 100 ms, at 10 ms groups that nothing covers, 10 ms each.

    Ranks compute until the last of those and then wait for the side streams.
    """

    def __init__(self) -> None:
        self.side: list[dict[str, Any]] = []
        self.main: list[dict[str, Any]] = []
        self.transfers: list[dict[str, Any]] = []

    def group(
        self, name: str, rate: float | None, *, beside: int = 0, alone: int = 0, transport: str = "HCCS", **more: Any
    ) -> Contention:
        """A group with so many transfers beside computing and without it, whose links reach `rate`."""
        collective = {"group": name, "op": "all_gather", "bytes": 10 * MB, **more}
        self.side += [collective] * beside
        self.main += [collective] * alone
        self.transfers += links_at(name, [rate], transport) if rate else []
        return self

    def findings(self, *transfers: dict[str, Any]) -> list[RuleFinding]:
        cluster = SmallCluster(2)
        for collective in self.side:
            cluster.issue([0, 1], 100, **collective)
        cluster.work([10, 10])
        for collective in self.main:
            cluster.meet([0, 1], 10, **collective)
        cluster.meet([0, 1], 10, group="small", bytes=1)
        left = 80 - 10 * len(self.main)
        cluster.work([left, left])
        cluster.end_step(exposed=90)
        return bandwidth_contention(cluster.context(transfers=[*self.transfers, *transfers]))


def transfers_of(finding: RuleFinding) -> list[float]:
    """What was replayed, in ms."""
    assert finding.gain.costs
    times: list[float] = (finding.gain.costs.transfer / MS).round(2).tolist()
    return sorted(times)


def test_groups_that_communicate_during_computing_are_slower() -> None:
    [finding] = Contention().group("dp", 8, beside=1).group("tp", 12.345, alone=1).findings()
    assert (finding.id, finding.confidence, finding.min_severity) == (
        "bandwidth-contention",
        0.75,
        "low",
    )  # 2 of 2 groups
    assert finding.subject == Subject(operators=("HCCS",))
    assert str(finding.amount) == "35 %"  # 1 - 8 / 12.345
    assert finding.evidence == (MeasuredValue("bandwidth_while_computing", 8.0, 12.35, "GB/s"),)
    # The step ends when the side stream does.
    assert finding.gain == PredictedGain(100, pytest.approx(100 * 8 / 12.345, rel=1e-4))


def test_rates_are_those_of_the_median_link() -> None:
    links = Contention().group("dp", None, beside=1).group("tp", None, alone=1)
    nothing = {"bytes": 10**12, "duration": 10**12}
    [finding] = links.findings(
        *links_at("dp", [2, 8, 20]),
        *links_at("tp", [1, 16, 20]),
        {**link("dp", "HCCS", 1, 2), "bytes": 50 * MB, "duration": 0},
        *({**link("dp", "HCCS", rank, rank), **nothing} for rank in range(3)),
        *({**link(group, "LOCAL"), **nothing} for group in ("dp", "tp")),
    )
    assert finding.evidence == (MeasuredValue("bandwidth_while_computing", 8.0, 16.0, "GB/s"),)


@pytest.mark.parametrize(("size", "is_found"), [(1_000_002, True), (1_000_000, False)])
def test_links_count_that_moved_more_than_a_megabyte(size: int, is_found: bool) -> None:
    links = Contention().group("dp", None, beside=1).group("tp", 16, alone=1)
    assert bool(links.findings(*links_at("dp", [8], size=size))) is is_found


@pytest.mark.parametrize(("size", "is_found"), [(1_000_001, True), (1_000_000, False)])
def test_collectives_count_that_move_more_than_a_megabyte(size: int, is_found: bool) -> None:
    groups = Contention().group("dp", 8, beside=1, bytes=size).group("tp", 16, alone=1)
    assert bool(groups.findings()) is is_found


@pytest.mark.parametrize(
    ("beside", "alone", "is_found"),
    [
        ([8.4], [10], True),
        ([8.5], [10], False),  # 0.85 of 10
        ([8.4, 9], [10], True),  # half of the groups
        ([8.4, 9, 9], [10], False),
        ([8.4], [1, 10, 11], True),  # the median of those without computing
        ([8.4], [1, 9, 11], False),
        ([8.4], [], False),
        ([], [10], False),
    ],
)
def test_half_of_the_groups_reach_less_than_0_85_of_the_others(
    beside: list[float], alone: list[float], is_found: bool
) -> None:
    groups = Contention()
    for number, rate in enumerate(beside):
        groups.group(f"beside {number}", rate, beside=1)
    for number, rate in enumerate(alone):
        groups.group(f"alone {number}", rate, alone=1)
    assert bool(groups.findings()) is is_found


def test_what_is_reached_is_the_median_of_all_groups_and_the_slow_ones_are_fixed() -> None:
    groups = Contention().group("a", 4, beside=1).group("b", 6, beside=1).group("c", 9.5, beside=1)
    [finding] = groups.group("alone", 10, alone=1).findings()
    assert finding.evidence[0].value == 6 and finding.amount and finding.amount.value == pytest.approx(40)
    # a and b in 0.6 of 100 ms, c and the collectives that nothing covers as before; step ends take no time.
    assert transfers_of(finding) == [0, 0, 10, 10, 60, 60, 100]


@pytest.mark.parametrize(
    ("dp", "tp", "transport"),
    [
        ((3, 2), (0, 1), "HCCS"),  # 0.6 of the transfers: a group that communicates during computing
        ((4, 3), (0, 1), ""),  # 0.57: neither, so its own transfers are compared with each other
        ((1, 0), (4, 3), ""),
        ((1, 0), (1, 1), "HCCS"),  # 0.5: a group that does not
        ((1, 0), (2, 1), None),  # 0.67
    ],
)
def test_a_group_communicates_during_computing_or_does_not(
    dp: tuple[int, int], tp: tuple[int, int], transport: str | None
) -> None:
    """Each with so many transfers during computing and without it."""
    groups = Contention().group("dp", 8, beside=dp[0], alone=dp[1]).group("tp", 16, beside=tp[0], alone=tp[1])
    found = [finding.subject.operators for finding in groups.findings()]
    assert found == ([] if transport is None else [(transport,) if transport else ()])


@pytest.mark.parametrize(
    ("changed", "is_found"),
    [
        ({}, True),
        ({"transport": "RDMA"}, False),
        ({"op": "send_receive"}, False),  # a single message has to start and to stop
    ],
)
def test_links_of_the_same_kind_are_compared(changed: dict[str, Any], is_found: bool) -> None:
    assert bool(Contention().group("dp", 8, beside=1, **changed).group("tp", 16, alone=1).findings()) is is_found


@pytest.mark.parametrize(("covered", "is_found"), [(10.1, True), (10, False)])
def test_a_transfer_runs_during_computing_that_covers_more_than_half_of_it(covered: float, is_found: bool) -> None:
    cluster = SmallCluster(2)
    cluster.work([60, 60])
    cluster.meet([0, 1], 20, group="first", op="all_gather", bytes=10 * MB)
    cluster.meet([0, 1], 20, group="second", op="all_gather", bytes=10 * MB)
    cluster.end_step(overlapped=covered, exposed=40 - covered)
    found = bandwidth_contention(cluster.context(transfers=[*links_at("first", [8]), *links_at("second", [10])]))
    assert bool(found) is is_found


def one_group(
    transfers: Sequence[float], covered: int, *, more: Sequence[float] = (), **columns: Any
) -> list[RuleFinding]:
    """One group sums gradients after 100 ms of work, 10 MB each time; computing covers the first of its transfers.

    `more` are transfers of a second pair of ranks, which has as many covered.
    """
    cluster = SmallCluster(4 if more else 2)
    cluster.work([100] * len(cluster.ranks))
    for time in transfers:
        cluster.meet([0, 1], time, group="dp", **{"bytes": 10 * MB, **columns})
    for time in more:
        cluster.meet([2, 3], time, group="dp 2", bytes=10 * MB)
    sums = [sum(transfers)] * 2 + [sum(more)] * 2
    hidden = [sum(transfers[:covered])] * 2 + [sum(more[:covered])] * 2
    ranks = range(len(cluster.ranks))
    exposed = [sums[rank] - hidden[rank] for rank in ranks]
    cluster.end_step(overlapped=[hidden[rank] for rank in ranks], exposed=exposed)
    return bandwidth_contention(cluster.context())


def test_transfers_of_one_group_are_slower_during_computing() -> None:
    # 10 MB in 20 and 30 ms, 0.5 and 0.333 GB/s, while computing; in 10 ms without, 1 GB/s.
    [finding] = one_group([20, 30, 10, 10], 2)
    assert (finding.id, finding.subject) == ("bandwidth-contention", Subject())
    assert finding.evidence == (MeasuredValue("bandwidth_while_computing", 0.42, 1.0, "GB/s"),)
    assert str(finding.amount) == "58 %"  # 1 - 0.41667
    # Computing still takes the 100 ms before and the 50 ms that covered both transfers.
    assert finding.gain.step_ms_now == 170
    assert transfers_of(finding) == [0, 0, 8.33, 10, 10, 12.5]


def queued_sums(times: list[float], *, with_kernels: bool = True) -> list[RuleFinding]:
    """Sums of 10 MB that queue one behind the other, beside 30 ms of computing and then beside none, in three steps."""
    cluster, kernels = SmallCluster(2), []
    for _ in range(3):
        for number, time in enumerate(times):
            begin = cluster._clock[0]
            cluster.issue([0, 1], time, group="dp", bytes=10 * MB)
            if number == 0 and with_kernels:
                kernels += [
                    {"rank": rank, "start": begin, "duration": 30_000_000, "core": "AI_CORE"} for rank in (0, 1)
                ]
            cluster.work([time, time])
        cluster.end_step()
    return bandwidth_contention(cluster.context(kernels=kernels))


def test_what_queues_behind_backward_runs_without_computing() -> None:
    [finding] = queued_sums([30, 10, 10])
    # 10 MB in 30 ms beside computing, 0.33 GB/s, and in 10 ms without, 1 GB/s; 3 and 6 of 9 collectives agree.
    assert finding.evidence == (MeasuredValue("bandwidth_while_computing", 0.33, 1.0, "GB/s"),)
    assert finding.confidence == 0.91
    assert not queued_sums([30, 30, 30])
    assert not queued_sums([30, 10, 10], with_kernels=False)  # nothing tells what runs beside computing


@pytest.mark.parametrize(
    ("transfers", "covered", "columns", "is_found"),
    [
        ([11.9, 11.9, 10, 10], 2, {}, True),  # 1 / 1.19 = 0.840 of the speed
        ([11.7, 11.7, 10, 10], 2, {}, False),  # 0.855
        ([20, 10, 10], 1, {}, False),  # two ranks with one transfer: fewer than four
        ([20, 20, 10], 2, {}, False),
        ([20, 20, 10, 10], 2, {"bytes": MB}, False),
        ([20, 20, 0, 10], 2, {}, False),  # a transfer that takes no time has no speed
    ],
)
def test_at_least_four_transfers_with_and_without_computing_are_compared(
    transfers: list[float], covered: int, columns: dict[str, Any], is_found: bool
) -> None:
    assert bool(one_group(transfers, covered, **columns)) is is_found


@pytest.mark.parametrize(
    ("first", "second", "reached"),
    [
        ([20, 20, 10, 10], [25, 25, 10, 10], 0.45),  # the median of 0.5 and 0.4 GB/s
        ([20, 20, 10, 10], [10, 10, 10, 10], None),  # half of the groups are as fast: no contention
        ([20, 20, 10, 10], [10, 10, 10], 0.5),  # too few to compare
        ([10, 10, 10], [20, 20, 10, 10], 0.5),
    ],
)
def test_more_than_half_of_the_groups_are_slower_during_computing(
    first: list[float], second: list[float], reached: float | None
) -> None:
    found = one_group(first, 2, more=second)
    assert [finding.evidence[0].value for finding in found] == ([reached] if reached else [])


# -- exposed gradients --------------------------------------------------------------------------------------------------

GROUPS = [{"group": "dp", "kind": "dp"}, {"group": "tp", "kind": "tp"}]


def exposed(
    gradients: Sequence[float],
    *,
    step: float = 100,
    hidden: float = 0,
    late: float = 0,
    tensor: float = 0,
    steps: int = 2,
    groups: list[dict[str, Any]] = GROUPS,
    **columns: Any,
) -> list[RuleFinding]:
    """Steps in which gradients are summed after all work, each time after 1 ms of it; `hidden` ms on a side stream.

    Rank 1 arrives `late` ms after rank 0.
    """
    cluster = SmallCluster(2)
    for _ in range(steps):
        if hidden:
            cluster.issue([0, 1], hidden, group="dp")
        before = step - sum(gradients) - tensor - len(gradients) - late
        cluster.work([before, before + late])
        if tensor:
            cluster.meet([0, 1], tensor, group="tp")
        for time in gradients:
            cluster.work([1, 1])
            cluster.meet([0, 1], time, group="dp")
        cluster.end_step(**columns)
    return comm_exposed(cluster.context(groups=groups))


def test_gradients_that_nothing_hides() -> None:
    [finding] = exposed([6, 7.1234, 8], late=20, tensor=10)
    assert (finding.id, finding.confidence, finding.subject) == (
        "comm-exposed",
        0.83,
        Subject(),
    )  # 4 of 4: ranks × steps
    assert str(finding.amount) == "21 %"  # 21.1234 of 100 ms; rank 0 waits 20 ms more, which does not count
    assert finding.evidence == (
        MeasuredValue("exposed_gradient_communication", 21.123, unit="ms_per_step"),
        MeasuredValue("overlapped_gradient_communication", 0.0, unit="ms_per_step"),
    )
    assert finding.gain == PredictedGain(100, pytest.approx(100 - 6 - 7.1234))  # the last has nothing to hide behind


def test_the_only_sum_of_a_step_may_be_cut_and_hidden() -> None:
    [finding] = exposed([10])
    assert finding.gain == PredictedGain(100, pytest.approx(90))


def test_the_last_sum_of_every_rank_cannot_be_hidden() -> None:
    cluster = SmallCluster(4)
    for _ in range(2):
        for time in (10, 20):
            cluster.work([30] * 4)
            for members in ([0, 1], [2, 3]):
                cluster.meet(members, time + members[0], group=f"dp {members[0]}")
        cluster.end_step()
    [finding] = comm_exposed(cluster.context(groups=[{"group": f"dp {rank}", "kind": "dp"} for rank in (0, 2)]))
    # 30 ms on ranks 0 and 1, 34 ms on 2 and 3, of steps of 90 and 94 ms.
    assert finding.evidence[0].value == 32 and str(finding.amount) == "35 %"
    assert finding.gain == PredictedGain(92, pytest.approx(92 - 11))  # less 10 and 12 ms


@pytest.mark.parametrize(
    ("changed", "is_found"),
    [
        ({"gradients": [3]}, True),
        ({"gradients": [2.99]}, False),
        ({"gradients": [2, 0.99], "tensor": 20}, False),
        ({"gradients": [10], "tensor": 5, "overlapped": 7.99}, True),  # 5 ms of it is the other group's: it comes first
        ({"gradients": [10], "tensor": 5, "overlapped": 8.01}, False),
        ({"gradients": [50], "hidden": 21.4, "tensor": 30}, True),  # 0.2997 of 71.4 ms
        ({"gradients": [50], "hidden": 21.5, "tensor": 30}, False),  # 0.3007 of 71.5 ms
        ({"gradients": [49], "hidden": 21, "tensor": 30}, False),  # 0.3
        ({"gradients": [], "tensor": 20}, False),
        ({"gradients": [0], "step": 1}, False),
    ],
)
def test_exposed_is_3_per_cent_of_the_step_and_less_than_0_3_is_hidden(changed: dict[str, Any], is_found: bool) -> None:
    assert bool(exposed(**changed)) is is_found


def test_steps_that_take_no_time() -> None:
    cluster = SmallCluster(2)
    cluster.meet([0, 1], 0)
    cluster.end_step()
    assert comm_exposed(cluster.context()) == []


@pytest.mark.parametrize(
    ("changed", "is_found"),
    [
        ({"exposed": None}, False),  # computing may have gone on meanwhile
        ({"exposed": None, "tensor": 10}, True),
        ({}, True),
    ],
)
def test_a_recording_shows_whether_computing_went_on(changed: dict[str, Any], is_found: bool) -> None:
    assert bool(exposed([10, 10], **changed)) is is_found


def test_both_parts_are_shown_where_little_is_hidden() -> None:
    # Of 12.345499 ms covered 10 are the other group's; of 69.999959 ms of gradients 67.65446 are exposed.
    [finding] = exposed([30, 39.999959], overlapped=12.345499, tensor=10)
    assert [value.value for value in finding.evidence] == [67.654, 2.345]


# -- which groups sum gradients -----------------------------------------------------------------------------------------


def sums(group: str | None, *, bytes: int | None = None, duration: int = 10, op: str = "all_reduce") -> dict[str, Any]:
    return {"group": group, "bytes": bytes, "duration": duration, "op": op}


@pytest.mark.parametrize(
    ("collectives", "groups", "expected"),
    [
        ([], [], []),
        ([sums("a", bytes=9), sums("b", bytes=1)], [{"group": "b", "kind": "dp"}, {"group": "a", "kind": "tp"}], ["b"]),
        ([sums("a", bytes=10), sums("b", bytes=5), sums("c", bytes=4)], [], ["a", "b"]),  # half as large as the largest
        ([sums("a", bytes=10), sums("b", bytes=90, op="all_gather"), sums(None, bytes=90)], [], ["a"]),
        ([sums("a", bytes=10), sums("b", bytes=9, op="reduce_scatter")], [], ["a", "b"]),
        ([sums("a", bytes=10), *(sums("b", bytes=size) for size in (1, 4, 90))], [], ["a"]),  # the median is 4
        ([sums("a", bytes=1), sums("b", duration=90)], [], ["a"]),  # sizes are known: a group without is small
        ([sums("a", duration=10), sums("b", duration=5), sums("c", duration=4)], [], ["a", "b"]),
        # The first decile of 1, 11, …, 91 is 10: 0.1 of the way through nine gaps.
        ([sums("a", duration=21), *(sums("b", duration=10 * n + 1) for n in range(10))], [], ["a"]),
        ([sums("a", duration=19), *(sums("b", duration=10 * n + 1) for n in range(10))], [], ["a", "b"]),
    ],
)
def test_groups_that_sum_gradients(
    collectives: list[dict[str, Any]], groups: list[dict[str, Any]], expected: list[str]
) -> None:
    cluster = SmallCluster(1)
    cluster.collectives = collectives
    assert sorted(gradient_groups(cluster.context(groups=groups))) == expected


def test_rules_of_communication_come_in_this_order() -> None:
    assert [each.priority for each in (small_packets, bandwidth_contention, comm_exposed)] == [50, 60, 70]
