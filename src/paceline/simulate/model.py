"""Cost of a transformer layer: kernels with shapes, types and times, and sizes of its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.simulate.cluster import ClusterSpec

CUBE_RATE = 35e3  # FLOP per ns an AI core reaches in matrix work (35 TFLOP/s)
VECTOR_RATE = 800.0  # bytes per ns of element-wise work
FLOAT16 = 2  # bytes
PEAK_RATE = 70e3  # FLOP per ns, from the data sheet

CUBE, MIXED, VECTOR, CPU = "AI_CORE", "MIX_AIC", "AI_VECTOR_CORE", "AI_CPU"


class Tokens(int):
    """A dimension of a shape that grows with the length of the sequences."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of the program, before noise and faults."""

    type: str
    core: str
    nanoseconds: float
    flops: float
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    micro_batch: int = -1  # -1: belongs to no micro-batch (optimizer)
    phase: str = "forward"  # forward, backward or tail
    layer: int = -1
    expert: bool = False  # its work grows with the tokens that the rank's experts get

    @property
    def name(self) -> str:
        return f"aclnn{self.type}_{self.type}AiCpu" if self.core == CPU else f"aclnn{self.type}_{self.type}_{self.type}"

    def loaded(self, load: float) -> Kernel:
        """The same kernel on longer or shorter sequences: only dimensions that count tokens change."""
        if load == 1.0:
            return self

        def scaled(shape: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(round(size * load) if isinstance(size, Tokens) else size for size in shape)

        return replace(self, inputs=tuple(map(scaled, self.inputs)), outputs=tuple(map(scaled, self.outputs)))

    def at(self, *, micro_batch: int, phase: str, layer: int, expert: bool = False) -> Kernel:
        return replace(self, micro_batch=micro_batch, phase=phase, layer=layer, expert=expert)


@dataclass(frozen=True)
class LayerCosts:
    """Kernels and message sizes of one layer on one tp shard, for micro-batches of `batch` sequences."""

    batch: int
    sequence: int
    hidden: int
    tp: int

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.batch * self.sequence)

    @property
    def activation_bytes(self) -> int:
        """Sent between stages, and reduced over tp, per micro-batch."""
        return self.tokens * self.hidden * FLOAT16

    @property
    def gradient_bytes(self) -> int:
        """12 h² weights per layer (4 h² attention, 8 h² MLP), split over tp."""
        return 12 * self.hidden * self.hidden // self.tp * FLOAT16

    def attention(self) -> list[Kernel]:
        tokens, hidden, part = self.tokens, self.hidden, self.hidden // self.tp
        return [
            self._vector("LayerNorm", 2),
            self._matmul(tokens, hidden, 3 * part),
            self._flash("FlashAttentionScore", 4.0),
            self._matmul(tokens, part, hidden),
        ]

    def mlp(self) -> list[Kernel]:
        tokens, hidden, wide = self.tokens, self.hidden, 4 * self.hidden // self.tp
        return [
            self._vector("Add", 3),
            self._vector("LayerNorm", 2),
            self._matmul(tokens, hidden, wide),
            self._vector("Gelu", 2, wide),
            self._matmul(tokens, wide, hidden),
        ]

    def mlp_backward(self) -> list[Kernel]:
        tokens, hidden, wide = self.tokens, self.hidden, 4 * self.hidden // self.tp
        return [
            self._matmul(tokens, hidden, wide),
            self._matmul(wide, tokens, hidden),
            self._vector("GeluGrad", 3, wide),
            self._matmul(tokens, wide, hidden),
            self._matmul(hidden, tokens, wide),
            self._vector("LayerNormGrad", 4),
            self._vector("Add", 3),
        ]

    def attention_backward(self) -> list[Kernel]:
        tokens, hidden, part = self.tokens, self.hidden, self.hidden // self.tp
        return [
            self._matmul(tokens, hidden, part),
            self._matmul(part, tokens, hidden),
            self._flash("FlashAttentionScoreGrad", 10.0),
            self._matmul(tokens, 3 * part, hidden),
            self._matmul(hidden, tokens, 3 * part),
            self._vector("LayerNormGrad", 4),
            self._vector("Cast", 2),
        ]

    def embedding(self) -> list[Kernel]:
        return [self._vector("GatherV2", 2), self._vector("Cast", 2)]

    def loss(self) -> list[Kernel]:
        return [self._vector("LayerNorm", 2), self._vector("SoftmaxCrossEntropyWithLogits", 3)]

    def gradient_norm(self) -> list[Kernel]:
        return [self._weights("ReduceSum", 1), self._weights("ForeachNorm", 1)]

    def optimizer(self) -> list[Kernel]:
        return [self._weights("ApplyAdamW", 14), self._weights("Cast", 3)]

    def on_host_cpu(self, type: str, nanoseconds: float) -> Kernel:
        shape = ((self.tokens,),)
        return Kernel(type, CPU, nanoseconds, 0.0, shape, shape)

    def _matmul(self, rows: int, inner: int, columns: int) -> Kernel:
        flops = 2.0 * rows * inner * columns
        shapes = ((rows, inner), (inner, columns))
        return Kernel("MatMulV2", CUBE, flops / CUBE_RATE, flops, shapes, ((rows, columns),))

    def _flash(self, type: str, passes: float) -> Kernel:
        """Attention in b sequences of s tokens: passes · b · s² · h / tp FLOP, at half the rate of a matrix product."""
        part = self.hidden // self.tp
        flops = passes * self.batch * self.sequence**2 * part
        shape = (self.batch, Tokens(self.sequence), part)
        return Kernel(type, MIXED, 2 * flops / CUBE_RATE, flops, (shape, shape, shape), (shape,))

    def _vector(self, type: str, passes: int, width: int | None = None) -> Kernel:
        """Element-wise work: the time to move the tensor `passes` times."""
        shape = (self.tokens, width or self.hidden)
        elements = shape[0] * shape[1]
        return Kernel(type, VECTOR, passes * elements * FLOAT16 / VECTOR_RATE, float(elements), (shape,), (shape,))

    def _weights(self, type: str, passes: int) -> Kernel:
        elements = self.gradient_bytes // FLOAT16
        return Kernel(
            type, VECTOR, passes * elements * FLOAT16 / VECTOR_RATE, float(elements), ((elements,),), ((elements,),)
        )


def layer_costs(spec: ClusterSpec, micro_batches: int) -> LayerCosts:
    """With fewer micro-batches than planned each is larger: the global batch stays the same."""
    return LayerCosts(spec.micro_batches // micro_batches, spec.sequence, spec.hidden, spec.tp)
