"""Train a workload in MindSpore: on Ascend or the CPU, data parallel with its own collectives."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

import mindspore as ms
from mindspore import Tensor, nn, ops
from paceline.training.ranks import Ranks
from paceline.training.workloads.mindspore_models import make_model
from paceline.training.workloads.options import WorkloadOptions
from paceline.training.workloads.synthetic_data import IGNORED, Samples


class MindSporeTrainer:
    """PyNative mode, which runs everywhere; on Ascend the step is compiled (ms.jit)."""

    def __init__(self, options: WorkloadOptions) -> None:
        ms.set_context(mode=ms.PYNATIVE_MODE)
        if options.device == "cpu" and ms.get_context("device_target") != "CPU":
            ms.set_device("CPU")
        ranks = Ranks.from_environment()
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self._sum: Any = None
        if self.world_size > 1:
            ms.communication.init()
            self._sum = ops.AllReduce()
        ms.set_seed(options.seed)  # the same weights on every rank
        self._model = make_model(options)
        if options.precision == "bfloat16":
            self._model.to_float(ms.bfloat16)
        self._adam = nn.AdamWeightDecay(self._model.trainable_params(), learning_rate=1.0, weight_decay=0.01)
        gradients = ms.value_and_grad(self._loss, None, self._adam.parameters)
        self._gradients = ms.jit(gradients) if ms.get_context("device_target") != "CPU" else gradients

    def train_step(self, batch: Samples, learning_rate: float) -> None:
        self._model.set_train(True)
        _, gradients = self._gradients(*_tensors(batch))
        if self._sum is not None:
            gradients = tuple(self._sum(each) / self.world_size for each in gradients)
        ops.assign(self._adam.learning_rate, Tensor(learning_rate, ms.float32))
        self._adam(gradients)

    def synchronize(self) -> None:
        if ms.get_context("device_target") != "CPU":
            ms.runtime.synchronize()

    def correct(self, batch: Samples) -> tuple[int, int]:
        self._model.set_train(False)
        found = self._model(_tensors(batch)[0]).asnumpy().argmax(-1)
        counted = batch.targets != IGNORED
        return int((found[counted] == batch.targets[counted]).sum()), int(counted.sum())

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Its CPU backend adds in float32: exact for counts up to 2^24."""
        if self._sum is None:
            return list(values)
        return [float(each) for each in self._sum(Tensor(np.array(values, np.float32))).asnumpy()]

    def close(self) -> None:
        """MindSpore leaves its communication group at exit."""

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = self._model(inputs).astype(ms.float32)
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED)


def _tensors(batch: Samples) -> tuple[Tensor, Tensor]:
    inputs = batch.inputs if batch.inputs.dtype == np.float32 else batch.inputs.astype(np.int32)
    return Tensor(inputs), Tensor(batch.targets.astype(np.int32))
