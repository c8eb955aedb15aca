"""One rank of a small data-parallel training on gloo with the light recorder; run as a program by the tests.

    python light_training.py RANK WORLD FOLDER FACTOR on|off [ddp]

FACTOR multiplies the rank's matrix products: 1 is healthy. Records into FOLDER/light and prints a sum of the weights.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.profiling import Recorder

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.real_runs.gloo_training import SIZE, step

PRODUCTS, LAYERS, STEPS = 8, 2, 26


def main() -> None:
    rank, world, folder, factor = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    originals = dist.all_reduce, dist.isend, dist.batch_isend_irecv, dist.Work.wait, dist.P2POp.__init__
    dist.init_process_group("gloo", init_method=f"file://{folder.absolute()}/meeting", rank=rank, world_size=world)
    pair = [dist.new_group(sorted({first, min(first + 1, world - 1)})) for first in range(0, world, 2)][rank // 2]
    recorder = Recorder(folder / "light", steps=100)
    if sys.argv[5] == "on":
        recorder.start()
    weights = [torch.randn(SIZE, SIZE) / SIZE**0.5 for _ in range(LAYERS)]
    for batch in recorder.data([torch.randn(SIZE, SIZE) for _ in range(STEPS)]):
        with recorder.phase("forward_backward"):
            step(weights, batch, round(PRODUCTS * factor))
        with recorder.phase("tail"):
            communicate(weights[0], pair)
        recorder.step()
    if sys.argv[6:] == ["ddp"]:
        weights += data_parallel(recorder)
    recorder.close()
    assert originals == (dist.all_reduce, dist.isend, dist.batch_isend_irecv, dist.Work.wait, dist.P2POp.__init__)
    dist.destroy_process_group()
    print(hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest())


def data_parallel(recorder: Recorder) -> list[torch.Tensor]:
    """Train a DistributedDataParallel model with several gradient buckets; returns its weights."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(4)))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if recorder.running:
        recorder.data_parallel(model)
    torch.manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 200)).square().mean().backward()
        optimizer.step()
        recorder.step()
    return [parameter.detach() for parameter in model.parameters()]


def communicate(weight: torch.Tensor, pair: dist.ProcessGroup) -> None:
    """Collectives of other kinds: asynchronous, in a smaller group, and point-to-point in a ring."""
    rank, world = dist.get_rank(), dist.get_world_size()
    work = dist.all_reduce(weight[0].clone(), group=pair, async_op=True)
    work.wait()
    received = torch.zeros(10)
    ring = [
        dist.P2POp(dist.isend, weight[0, :10].contiguous(), (rank + 1) % world),
        dist.P2POp(dist.irecv, received, (rank - 1) % world),
    ]
    for request in dist.batch_isend_irecv(ring):
        request.wait()
    weight[0, :10] += 1e-6 * received


if __name__ == "__main__":
    main()
