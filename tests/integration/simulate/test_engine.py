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
from paceline.simulate.program import Message, interleaved_order, one_forward_one_backward, stage_program
from paceline.simulate.recording import Recording, clock_offsets, record
from paceline.simulate.schedule_engine import SimulatedTimeline, nominal_links, run_schedule

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
    chunks = draw(st.integers(1, 2)) if pp > 1 else 1
    return ClusterSpec(
        hosts=world // devices,
        devices=devices,
        dp=dp,
        tp=tp,
        pp=pp,
        steps=2,
        layers=pp * chunks * draw(st.integers(1, 2)),
        micro_batches=pp * draw(st.integers(1, 2)) if chunks > 1 else draw(st.integers(1, 4)),
        chunks=chunks,
        hidden=384,
        sequence=128,
        seed=draw(st.integers(0, 99)),
        sequence_parallel=draw(st.booleans()),
        sharded=pp == 1 and dp > 1 and draw(st.booleans()),
        experts=dp if draw(st.booleans()) else 1,
        buffered_sends=draw(st.booleans()),
        cards_per_nic=draw(st.sampled_from([1, 2])),
        heavy_tails=draw(st.booleans()),
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
            if spec.buffered_sends and route.op in ("send", "receive"):
                continue
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


@pytest.mark.parametrize(("stages", "batches", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 8, 4)])
def test_bubble_of_an_interleaved_pipeline_shrinks_with_the_chunks(stages: int, batches: int, chunks: int) -> None:
    def bubble(chunks: int) -> float:
        spec = ClusterSpec(
            hosts=1, devices=stages, dp=1, tp=1, pp=stages, steps=1, layers=16, micro_batches=batches, chunks=chunks
        )
        ranks = recordings(spec)
        end = max(int(r.steps.backward_end[0] - r.offset) for r in ranks)
        begin = min(int(r.steps.ready[0] - r.offset) for r in ranks)
        mask = [np.array([k.phase != "tail" for k in r.program.kernels])[r.kernels.template] for r in ranks]
        busy = np.mean([r.kernels.duration[chosen].sum() for r, chosen in zip(ranks, mask, strict=True)])
        return float(1 - busy / (end - begin))

    # (p − 1) / v units of idle time beside m units of work, and up to as much again for transfers that cannot hide
    ideal = (stages - 1) / chunks / (batches + (stages - 1) / chunks)
    assert ideal - 0.03 < bubble(chunks) < bubble(1)


def test_interleaved_pieces_run_once_forward_and_once_backward() -> None:
    for stage in range(4):
        order = interleaved_order(4, stage, 8, 2)
        pieces = [(phase, b, c) for phase in ("forward", "backward") for b in range(8) for c in range(2)]
        assert sorted(order) == sorted(pieces)
        assert all(order.index(("forward", b, c)) < order.index(("backward", b, c)) for b in range(8) for c in range(2))


def test_a_layer_starts_when_its_sharded_weights_are_there() -> None:
    spec = ClusterSpec(hosts=2, devices=2, dp=4, tp=1, pp=1, steps=1, layers=4, micro_batches=1, sharded=True)
    for recording in recordings(spec):
        gathers = [n for n, message in enumerate(recording.program.messages) if message.op == "all_gather"]
        assert len(gathers) == 8  # each layer's weights, before forward and before backward
        ends = {
            int(template): int(start + duration)
            for template, start, duration in zip(
                recording.comm_ops.template, recording.comm_ops.start, recording.comm_ops.duration, strict=True
            )
        }
        layers = [kernel.layer for kernel in recording.program.kernels]
        for layer in range(4):
            first = layers.index(layer)
            assert int(recording.kernels.start[first]) >= ends[gathers[layer]]
        assert recording.steps.overlapped[0] > 0  # gathered while the layer before computes


def test_a_buffered_send_ends_before_its_receiver_is_ready() -> None:
    spec = ClusterSpec(hosts=1, devices=2, dp=1, tp=1, pp=2, steps=1, layers=2, micro_batches=4)

    def send_waits(spec: ClusterSpec) -> int:
        of = recordings(spec)[1]  # the last stage sends gradients to a stage that is still in forward
        sends = np.array([message.op == "send" for message in of.program.messages])[of.comm_ops.template]
        return int(of.comm_ops.wait[sends].sum())

    assert send_waits(ClusterSpec(**{**vars(spec), "buffered_sends": True})) < 0.2 * send_waits(spec)


def test_cards_that_share_a_network_card_share_its_bandwidth() -> None:
    spec = ClusterSpec(hosts=2, devices=4, dp=2, tp=4, pp=1, steps=1, layers=1, micro_batches=1, noise=0.0)
    cluster = Cluster(spec)
    shared = Cluster(ClusterSpec(**{**vars(spec), "cards_per_nic": 4}))

    def network(cluster: Cluster) -> float:
        program = stage_program(cluster.spec, healthy_state(cluster).model, 0)
        times = nominal_links(cluster, healthy_state(cluster), program)
        return float(times[[message.axis == "dp" for message in program.messages]].max())

    latency = 2 * TRANSPORTS["RDMA"].latency * (network(cluster) > 0)
    assert (network(shared) - latency) / (network(cluster) - latency) == pytest.approx(4, rel=0.05)


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
