"""One rank of four in small real trainings on gloo, recorded with torch.profiler; run as a program by the tests.

    python gloo_layouts.py RANK FOLDER CASE…        a CASE is LAYOUT-FAULT, e.g. fsdp-compute

Layouts: fsdp (FSDP2), tp (DTensor), pp (1F1B), ep (experts with all_to_all). Faults: none, compute (rank 2 computes longer),
input (the loader of rank 1 is late), send (rank 1 sends late), experts (rank 3 gets more tokens).
Writes FOLDER/CASE/rank-RANK.json.

What stands for computing is an operator that takes a given time whatever else the machine does, as a kernel would.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

WORLD, WIDTH, LAYERS, ROWS = 4, 64, 2, 16
WARM_UP, STEPS = 1, 6
WORK_MS = 20.0
SLOW, LATE, HOT = 2, 1, 3
"""Ranks: of slow computing, of late input and sends, of the popular experts."""
SLOWDOWN, INPUT_MS, SEND_MS, HOT_TOKENS = 2.5, 150.0, 40.0, 3
TOKENS = 32


@torch.library.custom_op("paceline_test::compute", mutates_args=())
def compute(x: torch.Tensor, ms: float) -> torch.Tensor:
    time.sleep(ms / 1e3)
    return x.clone()


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ms):  # type: ignore[no-untyped-def]
        ctx.ms = ms
        return compute(x, ms)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return compute(grad, 2 * ctx.ms), None


class Block(nn.Module):
    def __init__(self, ms: float) -> None:
        super().__init__()
        self.up, self.down, self.ms = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = Work.apply(torch.relu(self.up(x)), self.ms)
        out: torch.Tensor = self.down(hidden)
        return out


class Samples(Dataset[torch.Tensor]):
    """Samples that take a while to read."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __len__(self) -> int:
        return WARM_UP + STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.ms / 1e3)
        return torch.randn(ROWS, WIDTH)


Step = Callable[[torch.Tensor], None]


def fsdp(rank: int, fault: str) -> Step:
    model = blocks(LAYERS, rank, fault)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return trained(model)


def tp(rank: int, fault: str) -> Step:
    model = blocks(LAYERS, rank, fault)
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained(model)


def pp(rank: int, fault: str) -> Step:
    module = blocks(1, rank, fault)
    stage = PipelineStage(module, rank, WORLD, torch.device("cpu"))
    plan = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: out.sum())
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        if rank == 0:
            plan.step(batch)
        elif rank == WORLD - 1:
            plan.step(target=batch)
        else:
            plan.step()
        optimizer.step()

    return step


def ep(rank: int, fault: str) -> Step:
    """Tokens go to the ranks of their experts and back; a rank computes as long as it has tokens."""
    received = [TOKENS * (HOT_TOKENS if fault == "experts" and to == HOT else 1) for to in range(WORLD)]
    sent, got = received, [received[rank]] * WORLD
    per_token = ms_of(rank, fault) / (WORLD * TOKENS)
    weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5

    def step(batch: torch.Tensor) -> None:
        for _ in range(LAYERS):
            tokens = torch.randn(sum(sent), WIDTH)
            mine = torch.empty(sum(got), WIDTH)
            dist.all_to_all_single(mine, tokens, got, sent)
            mine = compute(mine @ weight, per_token * len(mine))
            dist.all_to_all_single(tokens, mine, sent, got)
        gradient = weight.clone()
        dist.all_reduce(gradient)

    return step


def blocks(count: int, rank: int, fault: str) -> nn.Sequential:
    return nn.Sequential(*(Block(ms_of(rank, fault)) for _ in range(count)))


def ms_of(rank: int, fault: str) -> float:
    return WORK_MS * (SLOWDOWN if fault == "compute" and rank == SLOW else 1.0)


def trained(model: nn.Module) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


LAYOUTS: dict[str, Callable[[int, str], Step]] = {"fsdp": fsdp, "tp": tp, "pp": pp, "ep": ep}


def record(rank: int, case: str, folder: Path) -> None:
    layout, fault = case.split("-")
    step = LAYOUTS[layout](rank, fault)
    late = INPUT_MS if fault == "input" and rank == (0 if layout == "pp" else LATE) else 1.0
    batches: Iterator[torch.Tensor] = iter(DataLoader(Samples(late), batch_size=None))
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    folder.mkdir(parents=True, exist_ok=True)

    def export(recording: profile) -> None:
        recording.export_chrome_trace(str(folder / f"rank-{rank}.json"))

    dist.barrier()
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, schedule=plan, on_trace_ready=export, record_shapes=True) as recording:
        for _ in range(WARM_UP + STEPS):
            step(next(batches))
            recording.step()
    dist.barrier()


def send_late() -> None:
    """Every message of this rank leaves late."""
    exchange = dist.batch_isend_irecv

    def slow(operations):  # type: ignore[no-untyped-def]
        if any(operation.op is dist.isend for operation in operations):
            time.sleep(SEND_MS / 1e3)
        return exchange(operations)

    dist.batch_isend_irecv = slow


def main() -> None:
    rank, folder, cases = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder.absolute()}/meeting", rank=rank, world_size=WORLD)
    for case in cases:
        original = dist.batch_isend_irecv
        if case.endswith("-send") and rank == LATE:
            send_late()
        record(rank, case, folder / case)
        dist.batch_isend_irecv = original
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
