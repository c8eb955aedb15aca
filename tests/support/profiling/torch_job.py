"""One rank of a small torch training on gloo, started by torchrun; run as a program by the tests.

    torchrun --nproc_per_node N torch_job.py FOLDER WAY [--steps N] [--slow RANK] [--gate STEP …] [--pause SECONDS]

WAY is plain, schedule or dynamic. Before the step of a gate all wait for FOLDER/gate-STEP. At the end the weights
are written, bit by bit, to FOLDER/weights-RANK.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

SIZE = 256
PRODUCTS = 12
SLOWDOWN = 3


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layers = [torch.nn.Parameter(torch.randn(SIZE, SIZE) / SIZE**0.5) for _ in range(3)]
    optimizer = torch.optim.SGD(layers, lr=1e-6)
    batch = torch.randn(SIZE, SIZE)
    with recorder(arguments.way, arguments.folder) as ended:
        for number in range(1, arguments.steps + 1):
            (arguments.folder / f"at-{rank}-{number}").touch()
            if number in arguments.gate:
                wait_for(arguments.folder / f"gate-{number}")
            backward(layers, batch, PRODUCTS * (SLOWDOWN if rank == arguments.slow else 1))
            time.sleep(arguments.pause)
            optimizer.step()
            ended()
    bits = "".join(each.detach().numpy().tobytes().hex() for each in layers)
    (arguments.folder / f"weights-{rank}.txt").write_text(bits)
    dist.destroy_process_group()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("way")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--slow", type=int, default=-1)
    parser.add_argument("--gate", type=int, action="append", default=[])
    parser.add_argument("--pause", type=float, default=0.0)
    return parser.parse_args()


@contextlib.contextmanager
def recorder(way: str, folder: Path) -> Iterator[Callable[[], None]]:
    """The function to call at the end of each step."""
    if way == "plain":
        yield lambda: None
        return
    from paceline.profiling import DynamicProfilerMonitor, Profiler, schedule, tensorboard_trace_handler

    data = str(folder / "data")
    if way == "schedule":
        plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=4)
        with Profiler(schedule=plan, on_trace_ready=tensorboard_trace_handler(data), ranks=[0, 2]) as profiler:
            yield profiler.step
    else:
        monitor = DynamicProfilerMonitor(folder / "config", data, poll_interval=0.1)
        yield monitor.step
        monitor.stop()


def wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


def backward(layers: list[torch.nn.Parameter], batch: torch.Tensor, products: int) -> None:
    """Work in proportion to `products`, then gradients summed over all ranks."""
    with torch.no_grad():
        for layer in layers:
            for _ in range(products):
                batch = layer @ batch
                batch = batch / batch.norm() * SIZE
            layer.grad = batch.clone()
            dist.all_reduce(layer.grad)


if __name__ == "__main__":
    main()
