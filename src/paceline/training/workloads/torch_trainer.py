"""Train a workload in torch: on Ascend (torch_npu), CUDA or the CPU, data parallel with the device's own collectives."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Sequence

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from paceline.training.launcher.rank_placement import rendezvous_from_env
from paceline.training.ranks import Ranks
from paceline.training.workloads.options import WorkloadOptions
from paceline.training.workloads.synthetic_data import IGNORED, Samples
from paceline.training.workloads.torch_models import make_model

_COLLECTIVES = {"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}


class TorchTrainer:
    def __init__(self, options: WorkloadOptions) -> None:
        ranks = Ranks.from_environment()
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self._kind = _device_kind(options)
        self._device = _own_device(self._kind, ranks)
        torch.manual_seed(options.seed)  # the same weights on every rank
        if self.world_size > 1:
            rendezvous_from_env(os.environ)
            torch.distributed.init_process_group(_COLLECTIVES[self._kind], rank=self.rank, world_size=self.world_size)
        plain = make_model(options).to(self._device)
        self._model: nn.Module = DistributedDataParallel(plain) if self.world_size > 1 else plain
        self._plain = plain
        self._adam = torch.optim.AdamW(plain.parameters(), weight_decay=0.01)
        self._bfloat16 = options.precision == "bfloat16"

    def train_step(self, batch: Samples, learning_rate: float) -> None:
        self._model.train()
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.zero_grad(set_to_none=True)
        inputs, targets = self._on_device(batch)
        with self._precision():
            logits = self._model(inputs)
        loss = cross_entropy(logits.float().flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
        torch.autograd.backward(loss)
        self._adam.step()

    def synchronize(self) -> None:
        if self._kind != "cpu":
            getattr(torch, self._kind).synchronize()

    def correct(self, batch: Samples) -> tuple[int, int]:
        self._plain.eval()
        inputs, targets = self._on_device(batch)
        with torch.no_grad(), self._precision():
            found = self._plain(inputs).argmax(-1)
        counted = targets != IGNORED
        return int((found[counted] == targets[counted]).sum()), int(counted.sum())

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float32 if self._kind == "npu" else torch.float64)
        if self.world_size > 1:
            tensor = tensor.to(self._device)
            torch.distributed.all_reduce(tensor)
        return [float(each) for each in tensor]

    def close(self) -> None:
        if self.world_size > 1:
            torch.distributed.destroy_process_group()

    def _on_device(self, batch: Samples) -> tuple[Tensor, Tensor]:
        inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        return inputs.to(self._device, non_blocking=True), targets.to(self._device, non_blocking=True)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self._kind, torch.bfloat16) if self._bfloat16 else nullcontext()


def _device_kind(options: WorkloadOptions) -> str:
    if options.device == "cpu":
        return "cpu"
    if find_spec("torch_npu") is not None:
        __import__("torch_npu")
        return "npu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _own_device(kind: str, ranks: Ranks) -> torch.device:
    if kind == "cpu":
        torch.set_num_threads(1 if ranks.local_size > 1 else torch.get_num_threads())
        return torch.device("cpu")
    device = torch.device(kind, ranks.local_rank)
    getattr(torch, kind).set_device(device)
    return device
