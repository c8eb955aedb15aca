"""A small torch training, FSDP2 or tensor parallel, that saves checkpoints: KIND OUTPUT STEPS DIES_AT [resume]."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from paceline.training import CheckpointMonitor, Monitored, OutputTree, resume_torch, torch_state

BATCH = 12  # divisible by 2, 3 and 4 ranks


def main(kind: str, output: Path, steps: int, dies_at: int, *, resume: bool) -> None:
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    wide = 14 if kind == "fsdp2" else 12  # 14 and 7 do not divide evenly, which torch's tensor parallelism needs
    model = nn.Sequential(nn.Linear(10, wide), nn.ReLU(), nn.Linear(wide, 7))
    mesh = init_device_mesh("cpu", (world,))
    if kind == "fsdp2":
        fully_shard(model)
    else:
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if resume:
        first = resume_torch(output / "checkpoint", model, optimizer).global_step or 0
    monitor = CheckpointMonitor("m", save_checkpoint_steps=5, async_save=True, outputs=OutputTree(output))
    state = torch_state(model, optimizer, step=first, total_steps=steps)
    with Monitored([monitor], state) as loop:
        for step in range(first, steps):
            random = torch.Generator().manual_seed(step)
            inputs, wanted = torch.randn(BATCH, 10, generator=random), torch.randn(BATCH, 7, generator=random)
            if kind == "fsdp2":
                own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
                inputs, wanted = inputs[own], wanted[own]
            loss = ((model(inputs) - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            if kind == "fsdp2":
                distributed.all_reduce(total)
                total /= world
            if rank == 0:
                print("loss", step + 1, float(total).hex(), flush=True)
            loop.step_end(loss=float(total))
            monitor._background.wait()  # a slow disk would make it save less often
            if step + 1 == dies_at:
                distributed.barrier()
                os.kill(os.getpid(), signal.SIGKILL)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), resume="resume" in sys.argv)
