"""One rank of a small data-parallel training on gloo, recorded with torch.profiler; run as a program by the test.

    python gloo_training.py RANK WORLD FOLDER FACTOR

FACTOR multiplies the rank's matrix products: 1 is healthy. Writes FOLDER/rank-RANK.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

SIZE = 384
PRODUCTS = 24
"""Matrix products per layer and pass: ≈ 0.1 s of one core per step, many scheduler slices even on a busy machine."""
LAYERS = 3
WARM_UP = 2
STEPS = 12
"""Enough for a habit to show where the scheduler makes every single step a lottery."""


def main() -> None:
    rank, world, folder, factor = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder.absolute()}/meeting", rank=rank, world_size=world)
    weights = [torch.randn(SIZE, SIZE) / SIZE**0.5 for _ in range(LAYERS)]
    train(weights, folder / f"rank-{rank}.json", products=round(PRODUCTS * factor))
    dist.destroy_process_group()


def train(weights: list[torch.Tensor], trace: Path, *, products: int) -> None:
    batch = torch.randn(SIZE, SIZE)
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)

    def export(recording: profile) -> None:
        recording.export_chrome_trace(str(trace))

    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=export) as recording:
        for _ in range(WARM_UP + STEPS):
            step(weights, batch, products)
            recording.step()


def step(weights: list[torch.Tensor], batch: torch.Tensor, products: int) -> None:
    """Forward, then backward with the gradients of each layer summed over all ranks before the next."""
    for weight in weights:
        batch = compute(weight, batch, products)
    for weight in reversed(weights):
        gradient = compute(weight, batch, products)
        dist.all_reduce(gradient)
        weight.sub_(gradient, alpha=1e-6)


def compute(weight: torch.Tensor, batch: torch.Tensor, products: int) -> torch.Tensor:
    for _ in range(products):
        batch = weight @ batch
        batch = batch / batch.norm() * SIZE
    return batch


if __name__ == "__main__":
    main()
