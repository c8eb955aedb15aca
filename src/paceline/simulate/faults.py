"""Faults of the simulator, by the ids that diagnosis uses, and their parsing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.core.errors import UsageError
from paceline.simulate import fault_effects
from paceline.simulate.cluster import Cluster
from paceline.simulate.cluster_state import ClusterState, healthy_state
from paceline.simulate.fault_arguments import FAULTS, FaultArguments
from paceline.simulate.fault_effects import FaultEffect


@dataclass(frozen=True)
class FaultKind:
    id: str
    usage: str
    about: str
    build: Callable[[Cluster, FaultArguments], FaultEffect] = field(repr=False)
    drawable: bool = True  # may be chosen by `random`
    needs: Callable[[Cluster], str | None] = field(
        default=lambda cluster: None, repr=False
    )  # why the fault is impossible here


@dataclass(frozen=True)
class Fault:
    """One fault of one simulated run."""

    id: str
    text: str
    effect: FaultEffect = field(repr=False)


def _needs_pipeline(cluster: Cluster) -> str | None:
    return None if cluster.spec.pp > 1 else "needs a pipeline (pp of 2 or more)"


def _needs_data_parallel(cluster: Cluster) -> str | None:
    return None if cluster.spec.dp > 1 else "needs data parallelism (dp of 2 or more)"


def _needs_network(cluster: Cluster) -> str | None:
    between = any(
        cluster.host(source) != cluster.host(target) for source, target in fault_effects.links_in_use(cluster)
    )
    return None if between else "needs groups that span hosts"


def _needs_experts(cluster: Cluster) -> str | None:
    return None if cluster.spec.experts > 1 else "needs ranks that share experts (experts of 2 or more)"


def _needs_two_periods(cluster: Cluster) -> str | None:
    return None if cluster.spec.steps >= 4 else "needs 4 steps or more"


def _needs_late_reduction(cluster: Cluster) -> str | None:
    """Of unsharded gradients, which are reduced once per step."""
    return "needs gradients that are not sharded" if cluster.spec.sharded else _needs_data_parallel(cluster)


def _needs_links(cluster: Cluster) -> str | None:
    return None if cluster.spec.world > 1 else "needs more than one rank"


KINDS: tuple[FaultKind, ...] = (
    FaultKind("slow-rank", "slow-rank[:RANKS][:FACTOR][:WHEN]", "a card computes slower", fault_effects.slow_rank),
    FaultKind("slow-host", "slow-host[:HOST][:FACTOR]", "all cards of a host compute slower", fault_effects.slow_host),
    FaultKind(
        "slow-link",
        "slow-link[:SRC-DST][:FACTOR]",
        "one link has less bandwidth",
        fault_effects.slow_link,
        needs=_needs_links,
    ),
    FaultKind(
        "slow-nic",
        "slow-nic[:HOST][:FACTOR]",
        "the network card of a host has less bandwidth",
        fault_effects.slow_nic,
        needs=_needs_network,
        drawable=False,
    ),
    FaultKind(
        "slow-network",
        "slow-network[:FACTOR]",
        "all links between hosts have less bandwidth",
        fault_effects.slow_network,
        needs=_needs_network,
        drawable=False,
    ),
    FaultKind(
        "small-packets",
        "small-packets[:KILOBYTES]",
        "data moves in small packets",
        fault_effects.small_packets,
        needs=_needs_links,
    ),
    FaultKind(
        "bandwidth-contention",
        "bandwidth-contention[:FACTOR]",
        "transfers slow down while computing",
        fault_effects.bandwidth_contention,
        needs=_needs_late_reduction,
    ),
    FaultKind(
        "comm-exposed",
        "comm-exposed",
        "gradients are reduced after backward, not during it",
        fault_effects.comm_exposed,
        needs=_needs_late_reduction,
    ),
    FaultKind(
        "load-imbalance",
        "load-imbalance[:FACTOR]",
        "replicas get batches of different size",
        fault_effects.load_imbalance,
        needs=_needs_data_parallel,
    ),
    FaultKind(
        "expert-imbalance",
        "expert-imbalance[:RANKS][:FACTOR]",
        "the experts of a rank get more tokens than others",
        fault_effects.expert_imbalance,
        needs=_needs_experts,
        drawable=False,
    ),
    FaultKind(
        "stage-imbalance",
        "stage-imbalance[:STAGE][:FACTOR]",
        "a pipeline stage has too many layers",
        fault_effects.stage_imbalance,
        needs=_needs_pipeline,
    ),
    FaultKind(
        "pipeline-bubble",
        "pipeline-bubble[:MICRO_BATCHES]",
        "too few micro-batches to fill the pipeline",
        fault_effects.pipeline_bubble,
        needs=_needs_pipeline,
    ),
    FaultKind(
        "input-bound", "input-bound[:RANKS][:FACTOR][:WHEN]", "the data loader is late", fault_effects.input_bound
    ),
    FaultKind("host-bound", "host-bound[:RANKS][:FACTOR]", "kernels are launched too slowly", fault_effects.host_bound),
    FaultKind(
        "slow-operator",
        "slow-operator[:TYPE][:RANKS][:FACTOR]",
        "one operator type is slow on some ranks",
        fault_effects.slow_operator,
    ),
    FaultKind(
        "cpu-operators",
        "cpu-operators[:MICROSECONDS]",
        "an operator of every layer runs on the AI CPU",
        fault_effects.cpu_operators,
    ),
    FaultKind(
        "frequency-drop",
        "frequency-drop[:RANKS][:FACTOR][:FROM_STEP]",
        "the AI core clock falls",
        fault_effects.frequency_drop,
    ),
    FaultKind(
        "memory-pressure",
        "memory-pressure[:RANKS][:MILLISECONDS]",
        "device memory is nearly full",
        fault_effects.memory_pressure,
    ),
    FaultKind(
        "memory-imbalance",
        "memory-imbalance[:RANKS][:FACTOR]",
        "a rank holds more memory than its peers",
        fault_effects.memory_imbalance,
    ),
    FaultKind(
        "one-off-stall",
        "one-off-stall[:RANK][:STEP][:MILLISECONDS]",
        "one rank stalls once",
        fault_effects.one_off_stall,
    ),
    FaultKind(
        "periodic-stall",
        "periodic-stall[:RANKS][:EVERY][:MILLISECONDS]",
        "ranks stall every few steps",
        fault_effects.periodic_stall,
        needs=_needs_two_periods,
        drawable=False,
    ),
    FaultKind(
        "jitter", "jitter[:RANKS][:SPREAD]", "compute times vary from micro-batch to micro-batch", fault_effects.jitter
    ),
    FaultKind(
        "data-incomplete",
        "data-incomplete[:missing-rank|truncated|missing-step][:RANKS]",
        "part of the recording is missing",
        fault_effects.data_incomplete,
        drawable=False,
    ),
    FaultKind(
        "clock-skew",
        "clock-skew[:HOST][:MILLISECONDS]",
        "a host's clock is wrong",
        fault_effects.clock_skew,
        drawable=False,
    ),
)

_BY_ID = {kind.id: kind for kind in KINDS}


def parse_faults(texts: Sequence[str], cluster: Cluster) -> list[Fault]:
    """Parse `id[:subject][:factor]…` and check it against the cluster; `random` chooses a fault by the seed."""
    return [_parse(_random_fault(cluster) if text == "random" else text, cluster) for text in texts]


def state_with_faults(faults: Sequence[Fault], cluster: Cluster) -> ClusterState:
    state = healthy_state(cluster)
    for fault in faults:
        state = fault.effect.apply(state)
    return state


def _parse(text: str, cluster: Cluster) -> Fault:
    id = text.split(":")[0]
    kind = _BY_ID.get(id)
    if kind is None:
        raise UsageError(f"unknown fault {id!r}", hint=f"possible faults: {', '.join(_BY_ID)}, random")
    if reason := kind.needs(cluster):
        raise UsageError(f"fault {text!r} {reason}")
    arguments = FaultArguments(text, kind.usage, cluster)
    effect = kind.build(cluster, arguments)
    arguments.done()
    return Fault(id, text, effect)


def _random_fault(cluster: Cluster) -> str:
    possible = [kind.id for kind in KINDS if kind.drawable and not kind.needs(cluster)]
    random = np.random.default_rng((cluster.spec.seed, FAULTS))
    return possible[int(random.integers(0, len(possible)))]
