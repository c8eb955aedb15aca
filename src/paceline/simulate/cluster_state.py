"""State of the simulated cluster: everything a fault can change; in a healthy cluster every factor is 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from paceline.simulate.cluster import Cluster, Floats
from paceline.simulate.program import ModelSplit


@dataclass(frozen=True)
class RecordingDamage:
    """Parts of the recording that are missing on disk."""

    missing_ranks: tuple[int, ...] = ()
    truncated_ranks: tuple[int, ...] = ()
    missing_steps: Mapping[int, int] = field(default_factory=dict)  # rank → step number


@dataclass(frozen=True)
class ClusterState:
    """Factors by [rank, step] unless noted; 1 = healthy."""

    model: ModelSplit
    compute: Floats  # time of every AI core kernel
    frequency: Floats  # 1 / clock: slows AI core kernels and shows in the AI Core Freq counter
    gaps: Floats  # host launch gaps
    input_wait: Floats
    stalls: Floats  # ns added once in the middle of the step
    load: Floats  # [step, dp index, micro-batch]: tokens in a micro-batch
    jitter: Floats  # [rank]: spread of compute between steps and micro-batches
    memory: Floats  # [rank]: device memory in use
    allocation_stalls: Floats  # [rank]: ns per step lost to freeing and allocating memory
    clock: Floats  # [rank]: ns added to the rank's clock
    expert_load: Floats  # tokens that the experts of a rank get
    operators: Mapping[str, Floats] = field(default_factory=dict)  # type → [rank]
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)  # (src, dst) → time per byte
    largest_packet: int | None = None  # bytes
    overlap: bool = True  # gradient buckets start during backward
    contention: float = 1.0  # time of a transfer while the same ranks compute
    damage: RecordingDamage = RecordingDamage()


def healthy_state(cluster: Cluster) -> ClusterState:
    spec = cluster.spec
    ones = np.ones((spec.world, spec.steps))
    zeros = np.zeros(spec.world)
    model = ModelSplit((spec.layers // spec.pp,) * spec.pp, spec.micro_batches)
    return ClusterState(
        model=model,
        compute=ones,
        frequency=ones,
        gaps=ones,
        input_wait=ones,
        stalls=0 * ones,
        load=np.ones((spec.steps, spec.dp, spec.micro_batches)),
        jitter=zeros,
        memory=np.ones(spec.world),
        allocation_stalls=zeros,
        clock=zeros,
        expert_load=ones,
    )
