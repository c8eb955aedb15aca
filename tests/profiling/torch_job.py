"""One rank of a small torch training on gloo, started by torchrun; run as a program by the tests.

    torchrun --nproc_per_node N torch_job.py FOLDER WAY [--steps N] [--slow RANK] [--pause MS]

WAY is plain, schedule, window, dynamic or light. Writes the sum of its weights, bit by bit, to FOLDER/weights-RANK.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.profiling import DynamicProfilerMonitor, Profiler, schedule, tensorboard_trace_handler

SIZE = 256
PRODUCTS = 12
SLOWDOWN = 3


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    weights = [torch.randn(SIZE, SIZE) / SIZE**0.5 for _ in range(3)]
    batch = torch.randn(SIZE, SIZE)
    products = PRODUCTS * (SLOWDOWN if rank == arguments.slow else 1)
    with warnings.catch_warnings(), recorder(arguments.way, arguments.folder) as ended:
        for number in range(1, arguments.steps + 1):
            (arguments.folder / f"at-{rank}-{number}").touch()
            train(weights, batch, products)
            time.sleep(arguments.pause / 1000)
            ended()
    (arguments.folder / f"weights-{rank}.txt").write_text("".join(each.numpy().tobytes().hex() for each in weights))
    dist.destroy_process_group()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("way")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--slow", type=int, default=-1)
    parser.add_argument("--pause", type=float, default=0.0)
    return parser.parse_args()


@contextlib.contextmanager
def recorder(way: str, folder: Path) -> Iterator[Callable[[], None]]:
    """What is to be called at the end of each step."""
    data = str(folder / "data")
    if way == "plain":
        yield lambda: None
    elif way == "schedule":
        plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
        with Profiler(schedule=plan, on_trace_ready=tensorboard_trace_handler(data), ranks=[0, 2]) as profiler:
            yield profiler.step
    elif way in ("window", "light"):
        backend = "light" if way == "light" else "auto"
        with Profiler(start_step=2, stop_step=5, output_path=data, backend=backend) as profiler:
            yield profiler.step
    else:
        monitor = DynamicProfilerMonitor(folder / "config", folder / "data", poll_interval=0.1)
        yield monitor.step
        monitor.stop()


def train(weights: list[torch.Tensor], batch: torch.Tensor, products: int) -> None:
    for weight in weights:
        for _ in range(products):
            batch = weight @ batch
            batch = batch / batch.norm() * SIZE
        gradient = batch.clone()
        dist.all_reduce(gradient)
        weight.sub_(gradient, alpha=1e-6)


if __name__ == "__main__":
    main()
