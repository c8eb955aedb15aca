"""How long each rank's own kernels, launch gaps and input waits take in a step: noise and faults applied.

Drawn from (seed, rank, step) alone, so that a rank's kernels can be made again when they are written and need
not be kept: memory stays flat however many ranks there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.simulate.cluster import Cluster, Floats, Ints, ticks
from paceline.simulate.conditions import Conditions
from paceline.simulate.program import StageProgram

LAUNCH_GAP = 3_000.0  # ns between two kernels when the host keeps up
INPUT_WAIT = 1_200_000.0  # ns from the start of a step until its batch is there
KERNELS, LINKS, STARTS, CARDS = 1, 2, 3, 6  # streams of random numbers
TOGETHER = 0.4  # part of the noise that all kernels of a card share, for good, and again for each step


@dataclass(frozen=True)
class Work:
    """One rank, one step. A kernel starts `gaps` after whatever came before it."""

    durations: Ints  # per kernel
    gaps: Ints  # per kernel
    input_wait: int
    message_gap: int  # before a communication operator is launched

    def segment_times(self, program: StageProgram) -> Ints:
        """Σ (gap + duration) of each segment's kernels."""
        sums: Ints = np.add.reduceat(self.durations + self.gaps, program.bounds)
        return sums


def rank_work(cluster: Cluster, conditions: Conditions, program: StageProgram, rank: int, step: int) -> Work:
    random = np.random.default_rng((cluster.spec.seed, KERNELS, rank, step))
    kernels = len(program.kernels)
    noise = 1.0 + cluster.spec.noise * (random.standard_normal(kernels) + TOGETHER * random.standard_normal())
    noise *= _card(cluster, rank)
    gap_noise = random.gamma(16.0, 1 / 16.0, kernels)
    input_noise = random.gamma(100.0, 1 / 100.0)
    swing = random.standard_normal(2 * conditions.model.micro_batches)
    factors = _factors(cluster, conditions, program, rank, step, swing)
    gap = conditions.gaps[rank, step]
    gaps = LAUNCH_GAP * gap * gap_noise
    gaps[kernels // 3] += conditions.stalls[rank, step] + conditions.allocation_stalls[rank]
    wait = INPUT_WAIT * input_noise * conditions.input_wait[rank, step]
    return Work(
        np.maximum(ticks(program.nanoseconds * factors * noise), 10),
        ticks(gaps),
        int(ticks(np.array([wait]))[0]),
        int(ticks(np.array([LAUNCH_GAP * gap]))[0]),
    )


def _card(cluster: Cluster, rank: int) -> float:
    """No two cards are alike."""
    random = np.random.default_rng((cluster.spec.seed, CARDS, rank))
    return 1.0 + cluster.spec.noise * TOGETHER * float(random.standard_normal())


def _factors(
    cluster: Cluster, conditions: Conditions, program: StageProgram, rank: int, step: int, swing: Floats
) -> Floats:
    """By how much each kernel of the rank is slower than on a healthy, evenly loaded cluster."""
    slower = conditions.compute[rank, step] * conditions.frequency[rank, step]
    factors: Floats = 1.0 + program.device_kernel * (slower - 1.0)
    of_batch = program.micro_batch >= 0
    load = conditions.load[step, cluster.coordinates(rank)[0]]
    factors[of_batch] *= load[program.micro_batch[of_batch]]
    if conditions.jitter[rank]:
        # forward and backward of a micro-batch swing apart
        halves = 2 * np.maximum(program.micro_batch, 0) + program.backward
        factors *= np.exp(conditions.jitter[rank] * swing[halves])
    for type, by_rank in conditions.operators.items():
        factors[program.types == type] *= by_rank[rank]
    return factors
