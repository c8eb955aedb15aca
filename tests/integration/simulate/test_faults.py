"""Each fault changes what it should, costs time, and is absent in the counterfactual run."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from paceline.core.errors import UsageError
from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.faults import KINDS, parse_faults, state_with_faults
from paceline.simulate.ground_truth import truth_of
from paceline.simulate.memory import CAPACITY, memory_of
from paceline.simulate.recording import Recording, clock_offsets, record
from paceline.simulate.schedule_engine import SimulatedTimeline, run_schedule

SPEC = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=4, layers=8, micro_batches=8)
EXPERTS = ClusterSpec(hosts=2, devices=4, dp=4, tp=1, pp=2, steps=4, layers=8, micro_batches=8, experts=4)
HARMLESS = {"memory-imbalance", "data-incomplete", "clock-skew"}


@lru_cache
def timeline(*faults: str, spec: ClusterSpec = SPEC) -> SimulatedTimeline:
    cluster = Cluster(spec)
    return run_schedule(cluster, state_with_faults(parse_faults(faults, cluster), cluster))


def recording(rank: int, *faults: str) -> Recording:
    made = timeline(*faults)
    return record(made, rank, int(clock_offsets(made.cluster, made.state)[rank]))


def mean_step(*faults: str) -> float:
    return float(timeline(*faults).step_times().mean())


@pytest.mark.parametrize("fault", [kind.id for kind in KINDS])
def test_fault_costs_time_and_its_counterfactual_is_the_healthy_run(fault: str) -> None:
    cluster = Cluster(EXPERTS if fault == "expert-imbalance" else SPEC)
    parsed = parse_faults([fault], cluster)
    truth = truth_of(run_schedule(cluster, state_with_faults(parsed, cluster)), parsed, "ascend-text")
    assert truth.faults[0].step_ms_without == truth.step_ms_healthy
    assert truth.step_ms_healthy.mean == pytest.approx(timeline(spec=cluster.spec).step_times().mean() / 1e6)
    if fault in HARMLESS:
        assert truth.step_ms.mean == truth.step_ms_healthy.mean
    else:
        assert truth.step_ms.mean > 1.01 * truth.step_ms_healthy.mean


def test_slow_rank_computes_longer_and_the_others_wait() -> None:
    slow, peer = recording(5, "slow-rank:5:1.3"), recording(4, "slow-rank:5:1.3")
    assert slow.steps.computing.sum() == pytest.approx(1.3 * peer.steps.computing.sum(), rel=0.01)
    assert peer.comm_ops.wait.sum() > 1.5 * recording(4).comm_ops.wait.sum()
    assert slow.comm_ops.wait.sum() < peer.comm_ops.wait.sum()


@pytest.mark.parametrize(
    ("when", "share"),
    [("", [1, 1, 1, 1]), ("since3", [0, 0, 1, 1]), ("grows2", [0, 1 / 3, 2 / 3, 1]), ("every2", None), ("some1", None)],
)
def test_a_fault_comes_when_it_should(when: str, share: list[float] | None) -> None:
    fault = f"slow-rank:5:1.6:{when}"
    slow, healthy = recording(5, fault).steps.computing, recording(5).steps.computing
    found = (slow / healthy - 1) / 0.6
    if share is None:
        assert sorted(found.round(1).tolist()) == ([0, 0, 1, 1] if when == "every2" else [0, 0, 0, 1])
    else:
        assert found == pytest.approx(share, abs=0.03)
    named = parse_faults([fault], Cluster(SPEC))[0].effect.subject.steps
    assert named == (() if not when else tuple((np.flatnonzero(found > 0.1) + 1).tolist()))


def test_hot_experts_get_more_tokens_and_their_neighbours_fewer() -> None:
    made = timeline("expert-imbalance:1:1.6", spec=EXPERTS)
    hot, cold = (record(made, rank, 0) for rank in (1, 0))
    assert made.state.expert_load[:4].sum(axis=0) == pytest.approx([4.0] * 4)
    template = next(n for n, kernel in enumerate(hot.program.kernels) if kernel.expert and kernel.type == "MatMulV2")
    kernel = hot.program.kernels[template]
    rows = [of.program.kernels[template].loaded(of.load(template, 2)).inputs[0][0] for of in (hot, cold)]
    assert rows == [round(kernel.inputs[0][0] * 1.6), round(kernel.inputs[0][0] * 0.8)]
    assert hot.kernels.duration.sum() > 1.2 * cold.kernels.duration.sum()


def test_a_slow_network_card_slows_every_link_of_its_host_and_no_other() -> None:
    four_hosts = replace(SPEC, hosts=4, devices=2, dp=4, tp=1, pp=2)
    state = timeline("slow-nic:2:4", spec=four_hosts).state
    assert state.links and all(4 in (source, target) or 5 in (source, target) for source, target in state.links)
    assert set(state.links.values()) == {4.0}


def test_every_few_steps_all_ranks_stand_still() -> None:
    pause = recording(0, "periodic-stall:all:2:100").steps.duration - recording(0).steps.duration
    assert (pause[[1, 3]] > 95e6).all() and (abs(pause[[0, 2]]) < 20e6).all()


def test_slow_host_slows_all_its_ranks() -> None:
    ratios = [
        recording(r, "slow-host:1:1.2").steps.computing.sum() / recording(r).steps.computing.sum() for r in range(8)
    ]
    assert ratios == pytest.approx([1.0] * 4 + [1.2] * 4, rel=0.01)


def test_slow_link_takes_longer_for_the_same_bytes_and_its_ring_waits() -> None:
    hit, other = recording(0, "slow-link:0-1:4"), recording(1, "slow-link:0-1:4")

    def transit(of: Recording) -> float:
        tensor_parallel = np.array([route.message.axis == "tp" for route in of.routes])[of.comm_ops.template]
        return float(of.comm_ops.transit[tensor_parallel].mean())

    assert transit(hit) == pytest.approx(4 * transit(recording(0)), rel=0.05)
    assert transit(other) == pytest.approx(transit(recording(1)), rel=0.01)
    assert other.comm_ops.wait.sum() > recording(1).comm_ops.wait.sum()


def test_small_packets_keep_the_bytes_and_multiply_the_packets() -> None:
    few, many = recording(0), recording(0, "small-packets:64")
    assert [route.bytes for route in few.routes] == [route.bytes for route in many.routes]
    assert max(size for route in many.routes for size, _ in route.packets.sizes) == 64 << 10
    assert many.comm_ops.transit.sum() > 1.2 * few.comm_ops.transit.sum()


def test_exposed_communication_is_not_overlapped() -> None:
    assert recording(0, "comm-exposed").steps.overlapped.sum() < 0.5 * recording(0).steps.overlapped.sum()


def test_contention_slows_only_transfers_during_computing() -> None:
    free, tight = recording(0), recording(0, "bandwidth-contention:3")
    gradients = [number for number, route in enumerate(free.routes) if route.message.axis == "dp"]

    def bucket(of: Recording, which: int) -> float:
        return float(of.comm_ops.transit[of.comm_ops.template == gradients[which]].mean())

    assert bucket(tight, 0) == pytest.approx(3 * bucket(free, 0), rel=0.05)
    assert bucket(tight, -1) == pytest.approx(bucket(free, -1), rel=0.05)


def test_load_varies_between_replicas_and_keeps_its_sum() -> None:
    load = timeline("load-imbalance:1.5").state.load
    assert load.mean(axis=(1, 2)) == pytest.approx([1.0] * SPEC.steps)
    assert len({int(step.sum(axis=1).argmax()) for step in load}) > 1 or np.ptp(load) > 0.2
    template = next(n for n, k in enumerate(recording(0).program.kernels) if k.type == "MatMulV2")
    uneven = recording(0, "load-imbalance:1.5")
    kernel = uneven.program.kernels[template]
    assert kernel.loaded(uneven.load(template, 2)).inputs[0][0] != kernel.inputs[0][0]


def test_overloaded_stage_has_more_layers_of_the_same_model() -> None:
    made = timeline("stage-imbalance:1:1.5")
    assert made.state.model.layers == (2, 6)
    assert len(made.programs[1].kernels) > len(made.programs[0].kernels)


def test_too_few_micro_batches_have_a_larger_bubble_and_the_same_work() -> None:
    healthy, starved = recording(4), recording(4, "pipeline-bubble:2")
    assert starved.steps.computing.sum() == pytest.approx(healthy.steps.computing.sum(), rel=0.02)
    assert starved.steps.bubble.sum() > 1.5 * healthy.steps.bubble.sum()


def test_slow_data_loader_delays_the_first_kernel() -> None:
    wait = recording(0, "input-bound").steps
    assert (wait.ready - wait.start).mean() > 40e6


def test_slow_host_program_has_gaps_between_kernels() -> None:
    assert recording(0, "host-bound").steps.free.sum() > 4 * recording(0).steps.free.sum()


def test_slow_operator_is_slow_on_the_chosen_ranks_only() -> None:
    faults = "slow-operator:FlashAttentionScore:2+3:3"

    def flash(rank: int) -> float:
        of = recording(rank, faults)
        chosen = (of.program.types == "FlashAttentionScore")[of.kernels.template]
        return float(of.kernels.duration[chosen].mean())

    assert flash(2) == pytest.approx(3 * flash(0), rel=0.02)
    assert flash(3) == pytest.approx(3 * flash(1), rel=0.02)


def test_cpu_operators_run_on_the_ai_cpu_in_every_layer() -> None:
    of = recording(0, "cpu-operators:500")
    on_cpu = [kernel for kernel in of.program.kernels if kernel.core == "AI_CPU"]
    assert len(on_cpu) == SPEC.micro_batches * SPEC.layers // SPEC.pp
    assert not any(kernel.core == "AI_CPU" for kernel in recording(0).program.kernels)


def test_lower_clock_shows_in_the_counter_and_in_the_kernels() -> None:
    of = recording(3, "frequency-drop:3:1.25:3")
    assert [of.megahertz(index) for index in range(4)] == [1800, 1800, 1440, 1440]
    assert of.steps.computing[3] == pytest.approx(1.25 * of.steps.computing[0], rel=0.01)


def test_memory_faults_show_in_the_memory_samples() -> None:
    assert memory_of(recording(0, "memory-pressure")).peak > 0.95 * CAPACITY
    assert (
        memory_of(recording(2, "memory-imbalance:2:1.6")).peak
        > 1.4 * memory_of(recording(0, "memory-imbalance:2:1.6")).peak
    )
    assert memory_of(recording(0)).peak < 0.6 * CAPACITY


def test_stall_is_in_one_step_only() -> None:
    stalled, usual = timeline("one-off-stall:3:2:100").step_times(), timeline().step_times()
    assert (stalled - usual > 50e6).tolist() == [False, True, False, False]


def test_jitter_spreads_the_step_times() -> None:
    def spread(*faults: str) -> float:
        return float(recording(0, *faults).steps.computing.std())

    assert spread("jitter:all:0.2") > 5 * spread()


def test_clock_skew_shifts_all_times_of_its_host_and_nothing_else() -> None:
    skewed, usual = recording(5, "clock-skew:1:40"), recording(5)
    assert set((skewed.kernels.start - usual.kernels.start).tolist()) == {40_000_000}
    assert (recording(0, "clock-skew:1:40").kernels.start == recording(0).kernels.start).all()


def test_several_faults_add_up_and_each_has_a_counterfactual() -> None:
    cluster = Cluster(SPEC)
    faults = parse_faults(["slow-rank:5:1.3", "input-bound"], cluster)
    truth = truth_of(run_schedule(cluster, state_with_faults(faults, cluster)), faults, "kineto")
    slow, late = (fault.step_ms_without.mean for fault in truth.faults)
    assert truth.step_ms_healthy.mean < min(slow, late) < max(slow, late) < truth.step_ms.mean
    assert slow == pytest.approx(mean_step("input-bound") / 1e6)


def test_every_finding_of_diagnosis_can_be_simulated() -> None:
    ids = (
        "slow-rank slow-host slow-nic slow-link slow-network small-packets bandwidth-contention comm-exposed "
        "load-imbalance expert-imbalance stage-imbalance pipeline-bubble input-bound host-bound slow-operator "
        "cpu-operators frequency-drop memory-pressure memory-imbalance one-off-stall periodic-stall jitter "
        "data-incomplete"
    )
    assert {kind.id for kind in KINDS} == {*ids.split(), "clock-skew"}


def test_random_fault_is_the_same_for_the_same_seed() -> None:
    drawn = {seed: parse_faults(["random"], Cluster(replace(SPEC, seed=seed)))[0].id for seed in range(12)}
    assert drawn == {seed: parse_faults(["random"], Cluster(replace(SPEC, seed=seed)))[0].id for seed in range(12)}
    assert len(set(drawn.values())) > 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow-disk", "unknown fault 'slow-disk'"),
        ("slow-rank:8", "ranks are 0 to 7, not '8'"),
        ("slow-rank:1:0.5", "the factor must be a number above 1, at most 1e+06, not '0.5'"),
        ("slow-rank:1:nan", "the factor must be a number above 1, at most 1e+06, not 'nan'"),
        ("slow-rank:1:2:3", "when is since, grows, every or some and a number up to 4, not '3'"),
        ("slow-rank:1:2:since3:4", "unexpected argument after 'slow-rank:1:2:since3'"),
        ("periodic-stall:1:3", "4 steps hold no two periods of 3"),
        ("expert-imbalance:1", "needs ranks that share experts"),
        ("slow-link:0-7", "link '0-7' carries no data; links in use: 0-1, "),
        ("slow-operator:Conv2D", "the operator type is one of Add, "),
        ("one-off-stall:1:9", "steps are 1 to 4, not '9'"),
        ("pipeline-bubble:3", "possible: 1, 2, 4"),
        ("data-incomplete:everything", "what is missing is one of missing-rank, truncated, missing-step"),
    ],
)
def test_impossible_fault_is_rejected_with_the_possible_values(text: str, message: str) -> None:
    with pytest.raises(UsageError) as rejected:
        parse_faults([text], Cluster(SPEC))
    assert message in str(rejected.value)


def test_unknown_fault_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as rejected:
        parse_faults(["slow-disk"], Cluster(SPEC))
    assert all(kind.id in str(rejected.value.hint) for kind in KINDS)


def test_pipeline_faults_need_a_pipeline() -> None:
    flat = Cluster(ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1))
    with pytest.raises(UsageError, match="needs a pipeline"):
        parse_faults(["stage-imbalance"], flat)
