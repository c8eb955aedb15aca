"""GPT-2 in MindSpore: the same parameters as in torch, on one CPU or on the ranks of msrun."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from paceline.core.errors import PacelineError
from paceline.training.ranks import Ranks
from paceline.training.reference.learner import Array, Optimizer, Score, StepOutcome, Tokens
from paceline.training.reference.shape import Lora, ModelShape, is_lora

_LARGE = -1e9


def _zeros(*shape: int) -> Parameter:
    return Parameter(Tensor(np.zeros(shape, np.float32)))


class SeededRandom:
    """Random numbers as a function of seed, rank and step.

    MindSpore's generator on a CPU is not reproducible: neither manual_seed nor set_rng_state resets the state of its kernels.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self._seed, self._rank = seed, rank
        self.at(0)

    def at(self, step: int) -> None:
        self._random = np.random.default_rng((self._seed, self._rank, step))

    def kept(self, shape: tuple[int, ...], p: float) -> Tensor:
        return Tensor((self._random.random(shape, np.float32) >= p).astype(np.float32) / np.float32(1 - p))


class Dropout(nn.Cell):  # type: ignore[misc]
    def __init__(self, p: float, random: SeededRandom) -> None:
        super().__init__()
        self.p, self.random = p, random

    def construct(self, x: Tensor) -> Tensor:
        return x * self.random.kept(x.shape, self.p) if self.training and self.p else x


class Weight(nn.Cell):  # type: ignore[misc]
    """A single matrix, so that its parameter is named `….weight`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = _zeros(*shape)

    def construct(self) -> Parameter:
        return self.weight


class LayerNorm(nn.Cell):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = _zeros(width), _zeros(width)
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=1e-5)

    def construct(self, x: Tensor) -> Tensor:
        return self.norm(x, self.weight, self.bias)[0]


class Linear(nn.Cell):  # type: ignore[misc]
    """Linear layer with optional LoRA matrices."""

    def __init__(self, inside: int, outside: int, lora: Lora | None, random: SeededRandom) -> None:
        super().__init__()
        self.weight, self.bias = _zeros(outside, inside), _zeros(outside)
        self.scale = lora.scale if lora else 0.0
        self.has_lora = lora is not None
        if lora is not None:
            self.lora_A, self.lora_B = Weight(lora.rank, inside), Weight(outside, lora.rank)
            self.lora_dropout = Dropout(lora.dropout, random)

    def construct(self, x: Tensor) -> Tensor:
        y = ops.matmul(x, self.weight.T) + self.bias
        if not self.has_lora:
            return y
        low = ops.matmul(self.lora_dropout(x), self.lora_A().T)
        return y + ops.matmul(low, self.lora_B().T) * self.scale


class Attention(nn.Cell):  # type: ignore[misc]
    def __init__(self, shape: ModelShape, random: SeededRandom) -> None:
        super().__init__()
        width = shape.hidden_size
        self.heads, self.size = shape.num_heads, width // shape.num_heads
        self.query = Linear(width, width, _lora("query", shape), random)
        self.key = Linear(width, width, _lora("key", shape), random)
        self.value = Linear(width, width, _lora("value", shape), random)
        self.output = Linear(width, width, _lora("output", shape), random)
        self.dropout = Dropout(shape.dropout, random)

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            ops.transpose(part(x).reshape(batch, length, self.heads, self.size), (0, 2, 1, 3))
            for part in (self.query, self.key, self.value)
        )
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / math.sqrt(self.size) + mask
        y = ops.matmul(self.dropout(ops.softmax(scores, -1)), v)
        return self.output(ops.transpose(y, (0, 2, 1, 3)).reshape(batch, length, width))


class Mlp(nn.Cell):  # type: ignore[misc]
    def __init__(self, shape: ModelShape, random: SeededRandom) -> None:
        super().__init__()
        width = shape.hidden_size
        self.wide = Linear(width, 4 * width, _lora("wide", shape), random)
        self.narrow = Linear(4 * width, width, _lora("narrow", shape), random)

    def construct(self, x: Tensor) -> Tensor:
        return self.narrow(ops.gelu(self.wide(x), approximate="tanh"))


class Block(nn.Cell):  # type: ignore[misc]
    def __init__(self, shape: ModelShape, random: SeededRandom) -> None:
        super().__init__()
        self.norm1, self.norm2 = LayerNorm(shape.hidden_size), LayerNorm(shape.hidden_size)
        self.attention, self.mlp = Attention(shape, random), Mlp(shape, random)
        self.dropout = Dropout(shape.dropout, random)

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), mask))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Gpt2(nn.Cell):  # type: ignore[misc]
    """Tokens in, logits of the next ones out; the head shares the embedding's weights."""

    def __init__(self, shape: ModelShape, random: SeededRandom) -> None:
        super().__init__()
        self.token_embedding = Weight(shape.vocab_size, shape.hidden_size)
        self.position_embedding = Weight(shape.seq_length, shape.hidden_size)
        self.dropout = Dropout(shape.dropout, random)
        self.blocks = nn.CellList([Block(shape, random) for _ in range(shape.num_layers)])
        self.final_norm = LayerNorm(shape.hidden_size)

    def construct(self, tokens: Tensor, mask: Tensor) -> Tensor:
        table = self.token_embedding()
        x = self.dropout(ops.gather(table, tokens, 0) + self.position_embedding()[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, mask)
        return ops.matmul(self.final_norm(x), table.T)


class MindSporeLearner:
    """PyNative mode; AdamW is implemented here, so that its state consists of arrays that are restored bit for bit."""

    def __init__(self, shape: ModelShape, optimizer: Optimizer, seed: int) -> None:
        ms.set_context(mode=ms.PYNATIVE_MODE)
        if ms.get_context("device_target") != "CPU":  # MindSpore refuses to set it again after the first computation
            ms.set_device("CPU")
        ranks = Ranks.from_environment()
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self._sum = None
        if self.world_size > 1:
            ms.communication.init()
            self._sum = ops.AllReduce()
        self._optimizer, self._steps, self._random_source = optimizer, 0, SeededRandom(seed, self.rank)
        self.model = Gpt2(shape, self._random_source)
        self._all = {parameter.name: parameter for parameter in self.model.get_parameters()}
        self._trained = {name: each for name, each in self._all.items() if shape.lora is None or is_lora(name)}
        self._moments = {name: _Moments(each) for name, each in self._trained.items()}
        self._gradients = ms.value_and_grad(self._loss, None, list(self._trained.values()))

    def train_step(self, batches: Tokens, learning_rate: float, loss_scale: float) -> StepOutcome:
        self._random_source.at(self._steps)
        self._steps += 1
        self.model.set_train(True)
        total, row = 0.0, np.zeros(0, np.float32)
        for batch in batches:
            loss, gradients = self._gradients(_int32(batch), loss_scale / len(batches))
            total += float(loss.asnumpy()) / loss_scale
            flat = np.concatenate([each.asnumpy().ravel() for each in gradients])
            row = flat if not row.size else row + flat
        row = self._averaged(np.append(row, np.float32(total)))
        mean = row[:-1] / np.float32(loss_scale)
        if not np.isfinite(mean).all():
            return StepOutcome(float(row[-1]), overflow=True)
        self._apply(mean, learning_rate)
        return StepOutcome(float(row[-1]), overflow=False)

    def score(self, batch: Tokens) -> Score:
        self.model.set_train(False)
        logits = self.model(_int32(batch[:, :-1]), _mask(batch.shape[1] - 1)).asnumpy().astype(np.float64)
        wanted = batch[:, 1:]
        top = logits.max(-1, keepdims=True)
        log = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        loss = -np.take_along_axis(log, wanted[..., None], -1).sum()
        return Score(float(loss), int((logits.argmax(-1) == wanted).sum()), wanted.size)

    def next_logits(self, tokens: Tokens) -> Array:
        self.model.set_train(False)
        logits: Array = self.model(_int32(tokens), _mask(tokens.shape[1])).asnumpy()[:, -1]
        return logits

    def weights(self) -> Mapping[str, Any]:
        return {name: parameter.asnumpy() for name, parameter in self._all.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        for name, parameter in self._all.items():
            if name not in weights:
                raise PacelineError(f"{name} not found in the checkpoint", hint="it belongs to another model")
            if weights[name].shape != tuple(parameter.shape):
                raise PacelineError(
                    f"{name}: shape {list(weights[name].shape)} in the checkpoint, but {list(parameter.shape)} in the model",
                    hint="use the model.model_config it was trained with",
                )
            parameter.set_data(Tensor(weights[name].astype(np.float32)))

    def trainable(self, name: str) -> bool:
        return name in self._trained

    def optimizer_state(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {"adam_steps": np.array(self._updates, np.int64), "rng_steps": np.array(self._steps)}
        for name, moments in self._moments.items():
            found[f"adam_m.{name}"], found[f"adam_v.{name}"] = moments.first, moments.second
        return found

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        self._updates, self._steps = int(state["adam_steps"]), int(state["rng_steps"])
        for name, moments in self._moments.items():
            moments.first, moments.second = state[f"adam_m.{name}"].copy(), state[f"adam_v.{name}"].copy()

    def sum_over_ranks(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self._sum is None:
            return values
        # Its CPU backend adds in float32: split into two halves, integers up to 2^48 stay exact.
        high, low = np.divmod(values, 65536.0)
        summed = self._sum(Tensor(np.concatenate([high, low]).astype(np.float32))).asnumpy().astype(np.float64)
        total: npt.NDArray[np.float64] = summed[: len(values)] * 65536.0 + summed[len(values) :]
        return total

    def close(self) -> None:
        """MindSpore leaves its communication group at exit."""

    _updates = 0

    def _loss(self, batch: Tensor, scale: float) -> Tensor:
        logits = self.model(batch[:, :-1], _mask(batch.shape[1] - 1))
        flat = logits.reshape(-1, logits.shape[-1])
        return ops.cross_entropy(flat, batch[:, 1:].reshape(-1)) * scale

    def _averaged(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self._sum is None:
            return row
        mean: npt.NDArray[np.float32] = self._sum(Tensor(row)).asnumpy() / np.float32(self.world_size)
        return mean

    def _apply(self, gradients: npt.NDArray[np.float32], learning_rate: float) -> None:
        """AdamW; p ← p - rate · (m̂ / (√v̂ + eps) + decay · p)"""
        o = self._optimizer
        norm = float(np.linalg.norm(gradients))
        if o.clip_norm and norm > o.clip_norm:
            gradients = gradients * np.float32(o.clip_norm / norm)
        self._updates += 1
        at = 0
        for name, parameter in self._trained.items():
            count = int(np.prod(parameter.shape))
            step = self._moments[name].step(gradients[at : at + count].reshape(parameter.shape), o, self._updates)
            at += count
            now = parameter.asnumpy()
            parameter.set_data(Tensor(now - np.float32(learning_rate) * (step + np.float32(o.weight_decay) * now)))


class _Moments:
    def __init__(self, parameter: Parameter) -> None:
        self.first: npt.NDArray[Any] = np.zeros(parameter.shape, np.float32)
        self.second: npt.NDArray[Any] = np.zeros(parameter.shape, np.float32)

    def step(self, gradient: npt.NDArray[Any], o: Optimizer, count: int) -> npt.NDArray[Any]:
        b1, b2 = np.float32(o.beta1), np.float32(o.beta2)
        self.first = b1 * self.first + (1 - b1) * gradient
        self.second = b2 * self.second + (1 - b2) * gradient * gradient
        first = self.first / np.float32(1 - o.beta1**count)
        second = self.second / np.float32(1 - o.beta2**count)
        step: npt.NDArray[Any] = first / (np.sqrt(second) + np.float32(o.eps))
        return step


def _mask(length: int) -> Tensor:
    return Tensor(np.triu(np.full((length, length), _LARGE, np.float32), 1))


def _int32(tokens: Tokens) -> Tensor:
    return Tensor(tokens.astype(np.int32))


def _lora(name: str, shape: ModelShape) -> Lora | None:
    return shape.lora if shape.lora and name in shape.lora.targets else None
