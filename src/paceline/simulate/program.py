"""Program of a pipeline stage in a step: the 1F1B schedule as a list of instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.simulate.cluster import ClusterSpec, Floats, Ints
from paceline.simulate.model import CPU, Kernel, LayerCosts, layer_costs


@dataclass(frozen=True)
class ModelSplit:
    """How the model is split into stages and micro-batches; changed by some faults."""

    layers: tuple[int, ...]  # per stage
    micro_batches: int
    cpu_operator: float = 0.0  # ns of one AI CPU operator in every layer; 0 = none


@dataclass(frozen=True)
class Message:
    """A communication operator of a stage's program."""

    op: str  # all_reduce, all_gather, reduce_scatter, all_to_all, send or receive
    axis: str  # tp, dp, mp, ep, next or previous
    payload: int  # bytes, a multiple of 512 × group size


@dataclass(frozen=True)
class Instruction:
    """compute: run segment `index`. For the others `index` is that of the message.

    collective  blocking                    send  without waiting       launch  start a gradient bucket without waiting
    receive     wait for the neighbour      join  wait for all sends and buckets (index unused)
    prefetch    start on the stream of the sharded weights               need    wait for a prefetched message
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
    device_kernel: Floats = field(repr=False)  # 1.0 for kernels of the AI core, 0.0 for the AI CPU
    expert: npt.NDArray[np.bool_] = field(repr=False)  # per kernel

    @property
    def segments(self) -> int:
        return len(self.bounds)


def stage_program(spec: ClusterSpec, model: ModelSplit, stage: int) -> StageProgram:
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


def interleaved_order(stages: int, stage: int, micro_batches: int, chunks: int) -> list[tuple[str, int, int]]:
    """The interleaved 1F1B order of (forward | backward, micro-batch, chunk), as Megatron runs it.

    The k-th piece of work belongs to chunk (k // stages) % chunks (backward: the last chunk first), micro-batch
    (k // (stages · chunks)) · stages + k % stages.

    >>> interleaved_order(2, 1, 2, 2)[:4]
    [('forward', 0, 0), ('forward', 1, 0), ('forward', 0, 1), ('backward', 0, 1)]
    """
    total = micro_batches * chunks

    def piece(phase: str, k: int) -> tuple[str, int, int]:
        chunk = k // stages % chunks
        batch = k // (stages * chunks) * stages + k % stages
        return phase, batch, chunk if phase == "forward" else chunks - 1 - chunk

    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
    order = [piece("forward", k) for k in range(warm_up)]
    for k in range(total - warm_up):
        order += [piece("forward", warm_up + k), piece("backward", k)]
    return order + [piece("backward", k) for k in range(total - warm_up, total)]


def schedule(spec: ClusterSpec, stage: int, micro_batches: int) -> list[tuple[str, int, int]]:
    if spec.chunks > 1:
        return interleaved_order(spec.pp, stage, micro_batches, spec.chunks)
    return [(phase, batch, 0) for phase, batch in one_forward_one_backward(spec.pp, stage, micro_batches)]


class _Builder:
    """Collects kernels into segments; a segment ends where the stage communicates."""

    def __init__(self, spec: ClusterSpec, model: ModelSplit, stage: int) -> None:
        self.spec, self.model, self.stage = spec, model, stage
        self.costs: LayerCosts = layer_costs(spec, model.micro_batches)
        self.instructions: list[Instruction] = []
        self.kernels: list[Kernel] = []
        self.messages: list[Message] = []
        self.bounds: list[int] = []
        self.open_segment = False
        self.gathered: dict[int, int] = {}  # layer → message that gathers its weights

    def build(self) -> StageProgram:
        for phase, batch, chunk in schedule(self.spec, self.stage, self.model.micro_batches):
            self._forward(batch, chunk) if phase == "forward" else self._backward(batch, chunk)
        last_backward = len(self.bounds) - 1
        self._tail()
        return StageProgram(
            self.stage,
            tuple(self.instructions),
            tuple(self.kernels),
            tuple(self.messages),
            np.array(self.bounds, dtype=np.int64),
            last_backward,
            np.array([kernel.nanoseconds for kernel in self.kernels]),
            np.array([kernel.micro_batch for kernel in self.kernels], dtype=np.int64),
            np.array([kernel.phase == "backward" for kernel in self.kernels], dtype=np.int64),
            np.array([kernel.type for kernel in self.kernels]),
            np.array([0.0 if kernel.core == CPU else 1.0 for kernel in self.kernels]),
            np.array([kernel.expert for kernel in self.kernels]),
        )

    def _layers(self, chunk: int) -> range:
        """The layers of one of the stage's chunks; the first chunks take what cannot be split evenly."""
        even, more = divmod(self.model.layers[self.stage], self.spec.chunks)
        first = chunk * even + min(chunk, more)
        return range(first, first + even + (chunk < more))

    def _is_first(self, chunk: int) -> bool:
        """Whether the chunk is the begin of the model."""
        return self.stage == 0 and chunk == 0

    def _is_last(self, chunk: int) -> bool:
        return self.stage == self.spec.pp - 1 and chunk == self.spec.chunks - 1

    def _forward(self, batch: int, chunk: int) -> None:
        if self._is_first(chunk):
            self._compute(self.costs.embedding(), batch, "forward")
        else:
            self._communicate("receive", "receive", "previous", self.costs.activation_bytes)
        layers = self._layers(chunk)
        for layer in layers:
            self._gather_weights(layer, ahead=layer + 1, layers=layers)
            self._block(self.costs.attention(), batch, "forward", layer)
            self._mlp(self.costs.mlp(), batch, "forward", layer)
            self._cpu_operator(batch, layer)
        if self._is_last(chunk):
            self._compute(self.costs.loss(), batch, "forward")
        else:
            self._communicate("send", "send", "next", self.costs.activation_bytes)

    def _backward(self, batch: int, chunk: int) -> None:
        if not self._is_last(chunk):
            self._communicate("receive", "receive", "next", self.costs.activation_bytes)
        layers = self._layers(chunk)
        for layer in reversed(layers):
            self._gather_weights(layer, ahead=layer - 1, layers=layers)
            self._mlp(self.costs.mlp_backward(), batch, "backward", layer)
            self._block(self.costs.attention_backward(), batch, "backward", layer)
            self._reduce_gradient(batch)
        if not self._is_first(chunk):
            self._communicate("send", "send", "previous", self.costs.activation_bytes)

    def _tail(self) -> None:
        """Wait for the gradients, norm over the replica, optimizer."""
        self._append(Instruction("join", -1))
        self._compute(self.costs.gradient_norm(), -1, "tail")
        if self.spec.tp * self.spec.pp > 1:
            self._communicate("collective", "all_reduce", "mp", 0)
        for layer in range(self.model.layers[self.stage]):
            self._compute(self.costs.optimizer(), -1, "tail", layer)

    def _block(self, kernels: list[Kernel], batch: int, phase: str, layer: int) -> None:
        """A sharded block: its result is reduced over tp, by all_reduce or by all_gather and reduce_scatter."""
        if self.spec.tp == 1:
            self._compute(kernels, batch, phase, layer)
            return
        if self.spec.sequence_parallel:
            self._communicate("collective", "all_gather", "tp", self.costs.activation_bytes)
        self._compute(kernels, batch, phase, layer)
        op = "reduce_scatter" if self.spec.sequence_parallel else "all_reduce"
        self._communicate("collective", op, "tp", self.costs.activation_bytes)

    def _mlp(self, kernels: list[Kernel], batch: int, phase: str, layer: int) -> None:
        """With experts, tokens go to the rank that holds their expert, and their results come back."""
        if self.spec.experts == 1:
            self._block(kernels, batch, phase, layer)
            return
        self._communicate("collective", "all_to_all", "ep", self.costs.activation_bytes)
        self._compute(kernels, batch, phase, layer, expert=True)
        self._communicate("collective", "all_to_all", "ep", self.costs.activation_bytes)

    def _gather_weights(self, layer: int, *, ahead: int, layers: range) -> None:
        """The weights of the next layer are gathered while this one computes (FSDP's prefetch)."""
        if not self.spec.sharded:
            return
        for wanted in (layer, ahead):
            if wanted in layers and wanted not in self.gathered:
                self.gathered[wanted] = len(self.messages)
                self._communicate("prefetch", "all_gather", "dp", self.costs.gradient_bytes)
        self._append(Instruction("need", self.gathered.pop(layer)))

    def _reduce_gradient(self, batch: int) -> None:
        """Sharded gradients are reduced after every micro-batch, others after the last."""
        if self.spec.sharded:
            self._communicate("prefetch", "reduce_scatter", "dp", self.costs.gradient_bytes)
        elif batch == self.model.micro_batches - 1 and self.spec.dp > 1:
            self._communicate("launch", "all_reduce", "dp", self.costs.gradient_bytes)

    def _cpu_operator(self, batch: int, layer: int) -> None:
        if self.model.cpu_operator:
            self._compute([self.costs.on_host_cpu("ArgSort", self.model.cpu_operator)], batch, "forward", layer)

    def _compute(self, kernels: list[Kernel], batch: int, phase: str, layer: int = -1, *, expert: bool = False) -> None:
        if not self.open_segment:
            self.instructions.append(Instruction("compute", len(self.bounds)))
            self.bounds.append(len(self.kernels))
            self.open_segment = True
        self.kernels += [kernel.at(micro_batch=batch, phase=phase, layer=layer, expert=expert) for kernel in kernels]

    def _communicate(self, kind: str, op: str, axis: str, payload: int) -> None:
        self._append(Instruction(kind, len(self.messages)))
        self.messages.append(Message(op, axis, _align_payload(payload, self._group_size(axis))))

    def _append(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.open_segment = False

    def _group_size(self, axis: str) -> int:
        spec = self.spec
        return {"tp": spec.tp, "dp": spec.dp, "mp": spec.tp * spec.pp, "ep": spec.experts}.get(axis, 1)


def _align_payload(payload: int, ranks: int) -> int:
    """The payload, rounded up so that each rank's share is a multiple of 512 bytes."""
    line = 512 * ranks
    return max(1, -(-payload // line)) * line
