"""Durations of a rank's kernels, launch gaps and input waits in a step, with noise and faults applied.

Drawn from (seed, rank, step) alone, so that the kernels of a rank can be generated again when they are written and need
not be kept: memory does not grow with the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.simulate.cluster import Cluster, Floats, Ints, ticks
from paceline.simulate.cluster_state import ClusterState
from paceline.simulate.program import StageProgram

LAUNCH_GAP = 3_000.0  # ns between two kernels when the host keeps up
INPUT_WAIT = 1_200_000.0  # ns from the start of a step until its batch is loaded
KERNELS, LINKS, STARTS, CARDS = 1, 2, 3, 6  # streams of random numbers
SHARED_NOISE = 0.4  # share of the noise common to all kernels of a card: once for the run, and again for each step


@dataclass(frozen=True)
class ComputeTimes:
    """Of one rank in one step. A kernel starts `gaps` after the previous kernel or communication."""

    durations: Ints  # per kernel
    gaps: Ints  # per kernel
    input_wait: int
    message_gap: int  # before a communication operator is launched

    def segment_times(self, program: StageProgram) -> Ints:
        """Σ (gap + duration) of each segment's kernels."""
        sums: Ints = np.add.reduceat(self.durations + self.gaps, program.bounds)
        return sums


def rank_compute_times(
    cluster: Cluster, state: ClusterState, program: StageProgram, rank: int, step: int
) -> ComputeTimes:
    random = np.random.default_rng((cluster.spec.seed, KERNELS, rank, step))
    kernels = len(program.kernels)
    spread = noise_spread(cluster, random, (kernels,)) + SHARED_NOISE * random.standard_normal()
    noise = np.maximum(1.0 + cluster.spec.noise * spread, 0.5)
    noise *= _card(cluster, rank)
    gap_noise = random.gamma(16.0, 1 / 16.0, kernels)
    input_noise = random.gamma(100.0, 1 / 100.0)
    swing = random.standard_normal(2 * state.model.micro_batches)
    factors = _factors(cluster, state, program, rank, step, swing)
    gap = state.gaps[rank, step]
    gaps = LAUNCH_GAP * gap * gap_noise
    gaps[kernels // 3] += state.stalls[rank, step] + state.allocation_stalls[rank]
    wait = INPUT_WAIT * input_noise * state.input_wait[rank, step]
    return ComputeTimes(
        np.maximum(ticks(program.nanoseconds * factors * noise), 10),
        ticks(gaps),
        int(ticks(np.array([wait]))[0]),
        int(ticks(np.array([LAUNCH_GAP * gap]))[0]),
    )


def noise_spread(cluster: Cluster, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Deviations with a standard deviation of 1: normal, or with the heavy tails of Student's t."""
    if cluster.spec.heavy_tails:
        heavy: Floats = random.standard_t(3, shape) / np.sqrt(3.0)
        return heavy
    return random.standard_normal(shape)


def _card(cluster: Cluster, rank: int) -> float:
    """Cards differ slightly in speed."""
    random = np.random.default_rng((cluster.spec.seed, CARDS, rank))
    return 1.0 + cluster.spec.noise * SHARED_NOISE * float(random.standard_normal())


def _factors(
    cluster: Cluster, state: ClusterState, program: StageProgram, rank: int, step: int, swing: Floats
) -> Floats:
    """Duration of each kernel, relative to a healthy, evenly loaded cluster."""
    slower = state.compute[rank, step] * state.frequency[rank, step]
    factors: Floats = 1.0 + program.device_kernel * (slower - 1.0)
    of_batch = program.micro_batch >= 0
    load = state.load[step, cluster.coordinates(rank)[0]]
    factors[of_batch] *= load[program.micro_batch[of_batch]]
    if state.jitter[rank]:
        # forward and backward of a micro-batch vary independently
        halves = 2 * np.maximum(program.micro_batch, 0) + program.backward
        factors *= np.exp(state.jitter[rank] * swing[halves])
    factors[program.expert] *= state.expert_load[rank, step]
    for type, by_rank in state.operators.items():
        factors[program.types == type] *= by_rank[rank]
    return factors
