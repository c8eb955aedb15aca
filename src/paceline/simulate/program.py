"""What a pipeline stage does in a step, in order: the 1F1B schedule written out as instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.simulate.cluster import ClusterSpec, Floats, Ints
from paceline.simulate.model import CPU, Costs, Kernel, costs_of


@dataclass(frozen=True)
class Model:
    """How the work is cut: what the model-shaping faults change."""

    layers: tuple[int, ...]  # per stage
    micro_batches: int
    cpu_operator: float = 0.0  # ns of one AI CPU operator in every layer; 0 = none


@dataclass(frozen=True)
class Message:
    """One communication operator of a stage's program."""

    op: str  # all_reduce, all_gather, reduce_scatter, send or receive
    axis: str  # tp, dp, mp, next or previous
    payload: int  # bytes, a multiple of 512 × group size


@dataclass(frozen=True)
class Instruction:
    """compute: run segment `index`. The others name message `index`.

    meet   blocking collective            send   hand over, go on      launch  start a gradient bucket, go on
    receive  wait for the neighbour       join   wait for all sends and buckets (index unused)
    """

    kind: str
    index: int


@dataclass(frozen=True)
class StageProgram:
    stage: int
    instructions: tuple[Instruction, ...]
    kernels: tuple[Kernel, ...]
    messages: tuple[Message, ...]
    bounds: Ints  # first kernel of each segment
    last_backward: int  # segment
    nanoseconds: Floats = field(repr=False)  # per kernel, before noise and faults
    micro_batch: Ints = field(repr=False)  # per kernel
    backward: Ints = field(repr=False)  # per kernel, 1 in the backward pass
    types: npt.NDArray[np.str_] = field(repr=False)  # per kernel
    device_kernel: Floats = field(repr=False)  # 1.0 where the clock of the AI core counts, 0.0 on the AI CPU

    @property
    def segments(self) -> int:
        return len(self.bounds)


def stage_program(spec: ClusterSpec, model: Model, stage: int) -> StageProgram:
    """The program of every rank of a stage."""
    return _Builder(spec, model, stage).build()


def one_forward_one_backward(stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    """The 1F1B order of (forward | backward, micro-batch).

    >>> one_forward_one_backward(2, 0, 3)
    [('forward', 0), ('forward', 1), ('backward', 0), ('forward', 2), ('backward', 1), ('backward', 2)]
    """
    warm_up = min(stages - stage - 1, micro_batches)
    order = [("forward", batch) for batch in range(warm_up)]
    for batch in range(micro_batches - warm_up):
        order += [("forward", warm_up + batch), ("backward", batch)]
    return order + [("backward", batch) for batch in range(micro_batches - warm_up, micro_batches)]


class _Builder:
    """Collects kernels into segments and cuts a segment wherever the stage talks to others."""

    def __init__(self, spec: ClusterSpec, model: Model, stage: int) -> None:
        self.spec, self.model, self.stage = spec, model, stage
        self.costs: Costs = costs_of(spec, model.micro_batches)
        self.instructions: list[Instruction] = []
        self.kernels: list[Kernel] = []
        self.messages: list[Message] = []
        self.bounds: list[int] = []
        self.open_segment = False

    def build(self) -> StageProgram:
        for phase, batch in one_forward_one_backward(self.spec.pp, self.stage, self.model.micro_batches):
            self._forward(batch) if phase == "forward" else self._backward(batch)
        last_backward = len(self.bounds) - 1
        self._tail()
        return StageProgram(
            self.stage, tuple(self.instructions), tuple(self.kernels), tuple(self.messages),
            np.array(self.bounds, dtype=np.int64), last_backward,
            np.array([kernel.nanoseconds for kernel in self.kernels]),
            np.array([kernel.micro_batch for kernel in self.kernels], dtype=np.int64),
            np.array([kernel.phase == "backward" for kernel in self.kernels], dtype=np.int64),
            np.array([kernel.type for kernel in self.kernels]),
            np.array([0.0 if kernel.core == CPU else 1.0 for kernel in self.kernels]),
        )  # fmt: skip

    def _forward(self, batch: int) -> None:
        if self.stage > 0:
            self._talk("receive", "receive", "previous", self.costs.activation_bytes)
        else:
            self._compute(self.costs.embedding(), batch, "forward")
        for layer in range(self.model.layers[self.stage]):
            self._block(self.costs.attention(), batch, "forward", layer)
            self._block(self.costs.mlp(), batch, "forward", layer)
            self._cpu_operator(batch, layer)
        if self.stage < self.spec.pp - 1:
            self._talk("send", "send", "next", self.costs.activation_bytes)
        else:
            self._compute(self.costs.loss(), batch, "forward")

    def _backward(self, batch: int) -> None:
        if self.stage < self.spec.pp - 1:
            self._talk("receive", "receive", "next", self.costs.activation_bytes)
        for layer in reversed(range(self.model.layers[self.stage])):
            self._block(self.costs.mlp_backward(), batch, "backward", layer)
            self._block(self.costs.attention_backward(), batch, "backward", layer)
            if batch == self.model.micro_batches - 1 and self.spec.dp > 1:
                self._talk("launch", "all_reduce", "dp", self.costs.gradient_bytes)
        if self.stage > 0:
            self._talk("send", "send", "previous", self.costs.activation_bytes)

    def _tail(self) -> None:
        """Gradients in, norm over the replica, optimizer."""
        self._do(Instruction("join", -1))
        self._compute(self.costs.gradient_norm(), -1, "tail")
        if self.spec.tp * self.spec.pp > 1:
            self._talk("meet", "all_reduce", "mp", 0)
        for layer in range(self.model.layers[self.stage]):
            self._compute(self.costs.optimizer(), -1, "tail", layer)

    def _block(self, kernels: list[Kernel], batch: int, phase: str, layer: int) -> None:
        """A sharded block: its result is summed over tp, whole (all_reduce) or by sequence parts (two halves)."""
        if self.spec.tp == 1:
            self._compute(kernels, batch, phase, layer)
            return
        if self.spec.sequence_parallel:
            self._talk("meet", "all_gather", "tp", self.costs.activation_bytes)
        self._compute(kernels, batch, phase, layer)
        op = "reduce_scatter" if self.spec.sequence_parallel else "all_reduce"
        self._talk("meet", op, "tp", self.costs.activation_bytes)

    def _cpu_operator(self, batch: int, layer: int) -> None:
        if self.model.cpu_operator:
            self._compute([self.costs.on_host_cpu("ArgSort", self.model.cpu_operator)], batch, "forward", layer)

    def _compute(self, kernels: list[Kernel], batch: int, phase: str, layer: int = -1) -> None:
        if not self.open_segment:
            self.instructions.append(Instruction("compute", len(self.bounds)))
            self.bounds.append(len(self.kernels))
            self.open_segment = True
        self.kernels += [kernel.at(micro_batch=batch, phase=phase, layer=layer) for kernel in kernels]

    def _talk(self, kind: str, op: str, axis: str, payload: int) -> None:
        self._do(Instruction(kind, len(self.messages)))
        self.messages.append(Message(op, axis, _even(payload, self._group_size(axis))))

    def _do(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.open_segment = False

    def _group_size(self, axis: str) -> int:
        spec = self.spec
        return {"tp": spec.tp, "dp": spec.dp, "mp": spec.tp * spec.pp}.get(axis, 1)


def _even(payload: int, ranks: int) -> int:
    """The payload, rounded up so that each rank's share is a whole number of 512-byte lines."""
    line = 512 * ranks
    return max(1, -(-payload // line)) * line
