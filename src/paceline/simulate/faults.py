"""The ways to break a cluster on purpose, by the ids that diagnosis uses, and how they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.errors import UsageError
from paceline.simulate import breakage
from paceline.simulate.arguments import FAULTS, Arguments
from paceline.simulate.breakage import Broken
from paceline.simulate.cluster import Cluster
from paceline.simulate.conditions import Conditions, healthy


@dataclass(frozen=True)
class FaultKind:
    id: str
    usage: str
    about: str
    build: Callable[[Cluster, Arguments], Broken] = field(repr=False)
    secret: bool = True  # may be drawn by `random`
    needs: Callable[[Cluster], str | None] = field(default=lambda cluster: None, repr=False)  # why it cannot be


@dataclass(frozen=True)
class Fault:
    """One fault of one simulated run."""

    id: str
    text: str
    broken: Broken = field(repr=False)


def _needs_pipeline(cluster: Cluster) -> str | None:
    return None if cluster.spec.pp > 1 else "needs a pipeline (pp of 2 or more)"


def _needs_data_parallel(cluster: Cluster) -> str | None:
    return None if cluster.spec.dp > 1 else "needs data parallelism (dp of 2 or more)"


def _needs_links(cluster: Cluster) -> str | None:
    return None if cluster.spec.world > 1 else "needs more than one rank"


KINDS: tuple[FaultKind, ...] = (
    FaultKind("slow-rank", "slow-rank[:RANKS][:FACTOR]", "a card computes slower", breakage.slow_rank),
    FaultKind("slow-host", "slow-host[:HOST][:FACTOR]", "all cards of a host compute slower", breakage.slow_host),
    FaultKind("slow-link", "slow-link[:SRC-DST][:FACTOR]", "one link has less bandwidth", breakage.slow_link,
              needs=_needs_links),
    FaultKind("small-packets", "small-packets[:KILOBYTES]", "data moves in small packets", breakage.small_packets,
              needs=_needs_links),
    FaultKind("bandwidth-contention", "bandwidth-contention[:FACTOR]", "transfers slow down while computing",
              breakage.bandwidth_contention, needs=_needs_data_parallel),
    FaultKind("comm-exposed", "comm-exposed", "gradients are summed after backward, not during it",
              breakage.comm_exposed, needs=_needs_data_parallel),
    FaultKind("load-imbalance", "load-imbalance[:FACTOR]", "replicas get batches of different size",
              breakage.load_imbalance, needs=_needs_data_parallel),
    FaultKind("stage-imbalance", "stage-imbalance[:STAGE][:FACTOR]", "a pipeline stage has too many layers",
              breakage.stage_imbalance, needs=_needs_pipeline),
    FaultKind("pipeline-bubble", "pipeline-bubble[:MICRO_BATCHES]", "too few micro-batches to fill the pipeline",
              breakage.pipeline_bubble, needs=_needs_pipeline),
    FaultKind("input-bound", "input-bound[:RANKS][:FACTOR]", "the data loader is late", breakage.input_bound),
    FaultKind("host-bound", "host-bound[:RANKS][:FACTOR]", "kernels are launched too slowly", breakage.host_bound),
    FaultKind("slow-operator", "slow-operator[:TYPE][:RANKS][:FACTOR]", "one operator type is slow on some ranks",
              breakage.slow_operator),
    FaultKind("cpu-operators", "cpu-operators[:MICROSECONDS]", "an operator of every layer runs on the AI CPU",
              breakage.cpu_operators),
    FaultKind("frequency-drop", "frequency-drop[:RANKS][:FACTOR][:FROM_STEP]", "the AI core clock falls",
              breakage.frequency_drop),
    FaultKind("memory-pressure", "memory-pressure[:RANKS][:MILLISECONDS]", "device memory is nearly full",
              breakage.memory_pressure),
    FaultKind("memory-imbalance", "memory-imbalance[:RANKS][:FACTOR]", "a rank holds more memory than its peers",
              breakage.memory_imbalance),
    FaultKind("one-off-stall", "one-off-stall[:RANK][:STEP][:MILLISECONDS]", "one rank stands still once",
              breakage.one_off_stall),
    FaultKind("jitter", "jitter[:RANKS][:SPREAD]", "compute times swing from micro-batch to micro-batch",
              breakage.jitter),
    FaultKind("data-incomplete", "data-incomplete[:missing-rank|truncated|missing-step][:RANKS]",
              "part of the recording is missing", breakage.data_incomplete, secret=False),
    FaultKind("clock-skew", "clock-skew[:HOST][:MILLISECONDS]", "a host's clock is wrong", breakage.clock_skew,
              secret=False),
)  # fmt: skip

_BY_ID = {kind.id: kind for kind in KINDS}


def parse_faults(texts: Sequence[str], cluster: Cluster) -> list[Fault]:
    """`id[:who][:factor]…`, each checked against the cluster; `random` draws one by the seed."""
    return [_parse(_drawn(cluster) if text == "random" else text, cluster) for text in texts]


def conditions_under(faults: Sequence[Fault], cluster: Cluster) -> Conditions:
    conditions = healthy(cluster)
    for fault in faults:
        conditions = fault.broken.apply(conditions)
    return conditions


def _parse(text: str, cluster: Cluster) -> Fault:
    id = text.split(":")[0]
    kind = _BY_ID.get(id)
    if kind is None:
        raise UsageError(f"unknown fault {id!r}", hint=f"possible faults: {', '.join(_BY_ID)}, random")
    if reason := kind.needs(cluster):
        raise UsageError(f"fault {text!r} {reason}")
    arguments = Arguments(text, kind.usage, cluster)
    broken = kind.build(cluster, arguments)
    arguments.done()
    return Fault(id, text, broken)


def _drawn(cluster: Cluster) -> str:
    possible = [kind.id for kind in KINDS if kind.secret and not kind.needs(cluster)]
    random = np.random.default_rng((cluster.spec.seed, FAULTS))
    return possible[int(random.integers(0, len(possible)))]
