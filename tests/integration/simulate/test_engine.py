"""The simulated schedule: parts of a step add up, rings, pipelines, common end of collectives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import UsageError
from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.cluster_state import healthy_state
from paceline.simulate.intervals import union
from paceline.simulate.links import TRANSPORTS, packets, transfer_time
from paceline.simulate.program import Message, one_forward_one_backward
from paceline.simulate.recording import Recording, clock_offsets, record
from paceline.simulate.schedule_engine import SimulatedTimeline, run_schedule

SMALL = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=2, layers=2, micro_batches=3)


def healthy_run(spec: ClusterSpec) -> SimulatedTimeline:
    cluster = Cluster(spec)
    return run_schedule(cluster, healthy_state(cluster))


def recordings(spec: ClusterSpec) -> list[Recording]:
    timeline = healthy_run(spec)
    offsets = clock_offsets(timeline.cluster, timeline.state).tolist()
    return [record(timeline, rank, offset) for rank, offset in enumerate(offsets)]


@st.composite
def specs(draw: st.DrawFn) -> ClusterSpec:
    dp, tp, pp = (draw(st.integers(1, 3)) for _ in range(3))
    world = dp * tp * pp
    devices = draw(st.sampled_from([n for n in range(1, world + 1) if world % n == 0]))
    return ClusterSpec(
        hosts=world // devices,
        devices=devices,
        dp=dp,
        tp=tp,
        pp=pp,
        steps=2,
        layers=pp * draw(st.integers(1, 2)),
        micro_batches=draw(st.integers(1, 4)),
        hidden=384,
        sequence=128,
        seed=draw(st.integers(0, 99)),
        sequence_parallel=draw(st.booleans()),
    )


@settings(max_examples=25, deadline=None)
@given(specs())
def test_parts_of_a_step_add_up_on_every_rank(spec: ClusterSpec) -> None:
    for recording in recordings(spec):
        steps, kernels, comm_ops = recording.steps, recording.kernels, recording.comm_ops
        assert (steps.computing + steps.exposed + steps.free == steps.duration).all()
        assert (steps.free >= 0).all()
        assert (steps.start[1:] == steps.end[:-1]).all()
        assert (comm_ops.transit + comm_ops.wait == comm_ops.duration).all()
        assert ((comm_ops.sync >= 0) & (comm_ops.sync <= comm_ops.wait)).all()
        assert all(
            (column % 10 == 0).all() for column in (kernels.start, kernels.duration, comm_ops.start, comm_ops.duration)
        )
        for index, number in enumerate(steps.number.tolist()):
            for events in (kernels.of(number), comm_ops.of(number)):
                assert (events.start >= steps.start[index]).all()
                assert (events.start + events.duration <= steps.end[index]).all()


@settings(max_examples=15, deadline=None)
@given(specs())
def test_collective_ends_on_all_ranks_after_the_last_arrival(spec: ClusterSpec) -> None:
    seen: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for recording in recordings(spec):
        comm_ops = recording.comm_ops
        for template, sequence, start, duration in zip(
            comm_ops.template, comm_ops.sequence, comm_ops.start - recording.offset, comm_ops.duration, strict=True
        ):
            route = recording.routes[template]
            # a send and its receive carry the same number in the communicator of their pair
            sender = {"send": str(recording.rank), "receive": str(route.peer)}.get(route.op, route.op)
            key = (route.group.id, sender, int(sequence))
            seen.setdefault(key, []).append((int(start), int(start + duration)))
    for times in seen.values():
        ends = [end for _, end in times]
        assert len(times) >= 2
        assert max(ends) - min(ends) <= 2_000
        assert min(ends) >= max(start for start, _ in times)


def test_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    once, again = healthy_run(SMALL).step_times(), healthy_run(SMALL).step_times()
    other = healthy_run(ClusterSpec(**{**vars(SMALL), "seed": 2})).step_times()
    assert (once == again).all()
    assert (once != other).any()


@pytest.mark.parametrize(
    ("op", "share"), [("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("send", 1.0)]
)
def test_ring_of_eight_sends_its_share_of_the_payload(op: str, share: float) -> None:
    payload = 8 * 512 * 1000
    assert packets(Message(op, "dp", payload), 8, 1 << 20).bytes == share * payload


def test_small_packets_cost_latency() -> None:
    message, link = Message("send", "next", 64 << 20), TRANSPORTS["RDMA"]
    big = transfer_time(packets(message, 2, 4 << 20), link)
    small = transfer_time(packets(message, 2, 64 << 10), link)
    assert big == pytest.approx((64 << 20) / 12.5 + 16 * 5_000)
    assert small == pytest.approx((64 << 20) / 12.5 + 1024 * 5_000)


@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (4, 8), (4, 4)])
def test_bubble_of_1f1b_is_as_in_theory(stages: int, batches: int) -> None:
    spec = ClusterSpec(
        hosts=1, devices=stages, dp=1, tp=1, pp=stages, steps=1, layers=2 * stages, micro_batches=batches
    )
    ranks = recordings(spec)
    end = max(int(r.steps.backward_end[0] - r.offset) for r in ranks)
    begin = min(int(r.steps.ready[0] - r.offset) for r in ranks)
    backward = [np.array([k.phase != "tail" for k in r.program.kernels])[r.kernels.template] for r in ranks]
    busy = np.mean([r.kernels.duration[mask].sum() for r, mask in zip(ranks, backward, strict=True)])
    assert 1 - busy / (end - begin) == pytest.approx((stages - 1) / (batches + stages - 1), abs=0.04)


def test_1f1b_runs_each_micro_batch_once_forward_and_once_backward() -> None:
    for stage in range(4):
        order = one_forward_one_backward(4, stage, 6)
        assert sorted(order) == sorted((phase, batch) for phase in ("forward", "backward") for batch in range(6))
        assert all(order.index(("forward", b)) < order.index(("backward", b)) for b in range(6))


def test_clocks_of_hosts_differ_by_milliseconds_by_default() -> None:
    spec = ClusterSpec(hosts=4, devices=2, dp=4, tp=2, pp=1)
    offsets = clock_offsets(Cluster(spec), healthy_state(Cluster(spec)))
    hosts = offsets.reshape(4, 2)
    assert np.ptp(hosts.mean(axis=1)) > 100_000
    assert np.ptp(hosts, axis=1).max() < 50_000
    synchronous = Cluster(ClusterSpec(**{**vars(spec), "clock_skew": False}))
    assert not clock_offsets(synchronous, healthy_state(synchronous)).any()


def test_ranks_are_numbered_as_in_megatron() -> None:
    cluster = Cluster(ClusterSpec(hosts=2, devices=8, dp=4, tp=2, pp=2))
    assert [cluster.coordinates(rank) for rank in (0, 1, 2, 8)] == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]
    assert cluster.group("tp", 5).ranks == (4, 5)
    assert cluster.group("dp", 5).ranks == (1, 3, 5, 7)
    assert cluster.group("next", 5).ranks == cluster.group("previous", 13).ranks == (5, 13)
    assert cluster.group("mp", 5).ranks == (4, 5, 12, 13)


def test_invalid_parallel_sizes_are_rejected() -> None:
    with pytest.raises(UsageError, match="dp 3 × tp 2 × pp 2 = 12 ranks, but 2 hosts × 8 devices = 16"):
        ClusterSpec(dp=3)


def test_unions_and_differences_of_intervals() -> None:
    left = union(np.array([0, 5, 20]), np.array([10, 10, 5]))
    right = union(np.array([8]), np.array([14]))
    assert left.starts.tolist() == [0, 20] and left.ends.tolist() == [15, 25]
    assert (left & right).length == 7 + 2
    assert (left - right).length == 20 - 9
