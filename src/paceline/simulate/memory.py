"""Device memory of a rank over time: static weights, and activations from forward to backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.simulate.cluster import Ints
from paceline.simulate.recording import Recording

CAPACITY = 64 << 30  # bytes
STATIC = 22 << 30  # weights, gradients, optimizer state
ACTIVATION = 5 << 30  # of one micro-batch in flight, all layers of a stage
SAMPLES = 40  # per step
DRIVER = 1 << 30  # used by the process outside the framework's allocator
BLOCK = 2 << 20  # unit in which the allocator requests memory


@dataclass(frozen=True)
class MemorySamples:
    """Bytes, multiples of 512."""

    time: Ints
    allocated: Ints
    reserved: Ints

    @property
    def peak(self) -> int:
        return int(self.allocated.max())


def static_bytes(recording: Recording) -> int:
    factor = recording.state.memory[recording.rank]
    return min(int(STATIC * factor), CAPACITY * 9 // 10) // 512 * 512


def memory_of(recording: Recording) -> MemorySamples:
    """A stage holds min(stages − stage, micro-batches) micro-batches at its peak (1F1B)."""
    spec, steps = recording.cluster.spec, recording.steps
    stage = recording.cluster.stage(recording.rank)
    in_flight = min(spec.pp - stage, recording.state.model.micro_batches)
    phase = (np.arange(SAMPLES) + 0.5) / SAMPLES
    # rises in the first quarter, falls in the last one
    shape = np.minimum(1.0, np.minimum(phase, 1.0 - phase) * 4.0)
    factor = float(recording.state.memory[recording.rank])
    top = static_bytes(recording) + ACTIVATION * in_flight / spec.pp * factor
    top = min(top, 0.985 * (CAPACITY - DRIVER))
    level = static_bytes(recording) + (top - static_bytes(recording)) * shape
    allocated = np.tile((level // 512 * 512).astype(np.int64), len(steps.number))
    time = (steps.start[:, None] + (steps.duration[:, None] * phase[None, :]).astype(np.int64) // 10 * 10).reshape(-1)
    reserved = np.minimum(-(-np.maximum.accumulate(allocated) // BLOCK) * BLOCK + 64 * BLOCK, CAPACITY - DRIVER)
    return MemorySamples(time, allocated, reserved)
