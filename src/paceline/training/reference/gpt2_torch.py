"""GPT-2 in torch: data parallel with gloo, bitwise reproducible."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention

from paceline.core.errors import PacelineError
from paceline.training.launcher.rank_placement import rendezvous_from_env
from paceline.training.ranks import Ranks
from paceline.training.reference.learner import Array, Optimizer, Score, StepOutcome, Tokens
from paceline.training.reference.shape import Lora, ModelShape, is_lora

_RANDOM = "rng_state"


class Linear(nn.Linear):
    """Linear layer with optional LoRA matrices, named as in PEFT."""

    def __init__(self, inside: int, outside: int, lora: Lora | None) -> None:
        super().__init__(inside, outside)
        self.lora = lora
        if lora is not None:
            self.lora_A = nn.Linear(inside, lora.rank, bias=False)
            self.lora_B = nn.Linear(lora.rank, outside, bias=False)
            self.lora_dropout = nn.Dropout(lora.dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = linear(x, self.weight, self.bias)
        if self.lora is None:
            return y
        change: Tensor = self.lora_B(self.lora_A(self.lora_dropout(x)))
        return y + change * self.lora.scale


class Attention(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.heads, self.dropout = shape.num_heads, shape.dropout
        self.query = Linear(width, width, _lora("query", shape))
        self.key = Linear(width, width, _lora("key", shape))
        self.value = Linear(width, width, _lora("value", shape))
        self.output: nn.Module = Linear(width, width, _lora("output", shape))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        out: Tensor = self.output(y.transpose(1, 2).reshape(batch, length, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.wide = Linear(width, 4 * width, _lora("wide", shape))
        self.narrow: nn.Module = Linear(4 * width, width, _lora("narrow", shape))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(gelu(self.wide(x), approximate="tanh"))
        return y


class Block(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(shape.hidden_size), nn.LayerNorm(shape.hidden_size)
        self.attention, self.mlp = Attention(shape), Mlp(shape)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class Gpt2(nn.Module):
    """Tokens in, logits of the next ones out; the head shares the embedding's weights."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.position_embedding = nn.Embedding(shape.seq_length, shape.hidden_size)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.final_norm = nn.LayerNorm(shape.hidden_size)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1])
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        return linear(self.final_norm(x), self.token_embedding.weight)


class TorchLearner:
    """All-reduces the gradients in one piece: the same sums in the same order, also after a resume.

    (DistributedDataParallel rearranges its buckets after the first step, so that a resumed run would add in another order.)
    """

    def __init__(self, shape: ModelShape, optimizer: Optimizer, seed: int) -> None:
        ranks = Ranks.from_environment()
        self.rank, self.world_size = ranks.rank, ranks.world_size
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        if self.world_size > 1:
            rendezvous_from_env(os.environ)
            torch.distributed.init_process_group("gloo", rank=self.rank, world_size=self.world_size)
        self.model: Any = self._make_model(shape, seed)
        self._trained: dict[str, nn.Parameter] = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if (shape.lora is None or is_lora(name)) and self._is_own(name)
        }
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(shape.lora is None or name in self._trained)
        self._clip_norm = optimizer.clip_norm
        self._adam = torch.optim.AdamW(
            self._trained.values(),
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            foreach=False,
            fused=False,
        )

    def _make_model(self, shape: ModelShape, seed: int) -> nn.Module:
        torch.manual_seed(seed + self.rank)
        return Gpt2(shape)

    def _is_own(self, name: str) -> bool:
        """Whether this rank updates and saves a parameter of its model."""
        return True

    def train_step(self, batches: Tokens, learning_rate: float, loss_scale: float) -> StepOutcome:
        self.model.train()
        self._adam.zero_grad(set_to_none=True)
        total = torch.zeros(1)
        for batch in torch.from_numpy(batches):
            loss = self._loss(batch) / len(batches)
            torch.autograd.backward(loss * loss_scale)
            total += loss.detach()
        gradients, loss_mean = self._averaged(total)
        gradients /= loss_scale
        if not torch.isfinite(gradients).all():
            return StepOutcome(loss_mean, overflow=True)
        self._apply(gradients, learning_rate, gradients.norm().item())
        return StepOutcome(loss_mean, overflow=False)

    @torch.no_grad()
    def score(self, batch: Tokens) -> Score:
        self.model.eval()
        tokens = torch.from_numpy(batch)
        logits = self.model(tokens[:, :-1])
        wanted = tokens[:, 1:]
        loss = cross_entropy(logits.transpose(1, 2), wanted, reduction="sum")
        return Score(loss.item(), int((logits.argmax(-1) == wanted).sum()), wanted.numel())

    @torch.no_grad()
    def next_logits(self, tokens: Tokens) -> Array:
        self.model.eval()
        logits: Array = self.model(torch.from_numpy(tokens))[:, -1].numpy()
        return logits

    def weights(self) -> Mapping[str, Any]:
        return {name: parameter.detach().numpy() for name, parameter in self.model.named_parameters()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        for name, parameter in self.model.named_parameters():
            if name not in weights:
                raise PacelineError(f"{name} not found in the checkpoint", hint="it belongs to another model")
            self._copy(name, parameter, weights[name])

    @staticmethod
    def _copy(name: str, parameter: Tensor, value: Array) -> None:
        if value.shape != tuple(parameter.shape):
            raise PacelineError(
                f"{name}: shape {list(value.shape)} in the checkpoint, but {list(parameter.shape)} in the model",
                hint="use the model.model_config it was trained with, and --src_strategy_path_or_dir if it is sharded",
            )
        parameter.copy_(torch.from_numpy(value.astype(np.float32)))

    def trainable(self, name: str) -> bool:
        return name in self._trained

    def optimizer_state(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {_RANDOM: torch.get_rng_state().numpy()}
        for name, parameter in self._trained.items():
            state = self._adam.state.get(parameter)
            if state:
                found[f"adam_m.{name}"] = state["exp_avg"].numpy()
                found[f"adam_v.{name}"] = state["exp_avg_sq"].numpy()
                found["adam_steps"] = np.array(int(state["step"]), np.int64)
        return found

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        if _RANDOM in state:
            torch.set_rng_state(torch.from_numpy(state[_RANDOM].copy()))
        if "adam_steps" not in state:
            return  # saved before the first update
        for name, parameter in self._trained.items():
            self._adam.state[parameter] = {
                "step": torch.tensor(float(state["adam_steps"])),
                "exp_avg": torch.from_numpy(state[f"adam_m.{name}"].copy()),
                "exp_avg_sq": torch.from_numpy(state[f"adam_v.{name}"].copy()),
            }

    def sum_over_ranks(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        summed = torch.from_numpy(values.copy())
        if self.world_size > 1:
            torch.distributed.all_reduce(summed)
        return summed.numpy()

    def close(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _loss(self, batch: Tensor) -> Tensor:
        logits = self.model(batch[:, :-1])
        return cross_entropy(logits.transpose(1, 2), batch[:, 1:])

    def _averaged(self, loss: Tensor) -> tuple[Tensor, float]:
        """All gradients as one vector, with the loss appended, averaged over the ranks."""
        row = torch.cat([gradient_of(p) for p in self._trained.values()] + [loss])
        if self.world_size > 1:
            torch.distributed.all_reduce(row)
            row /= self.world_size
        return row[:-1], row[-1].item()

    def _apply(self, gradients: Tensor, learning_rate: float, norm: float) -> None:
        if self._clip_norm and norm > self._clip_norm:
            gradients *= self._clip_norm / norm
        at = 0
        for parameter in self._trained.values():
            parameter.grad = gradients[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        self._adam.step()


def gradient_of(parameter: Tensor) -> Tensor:
    return torch.zeros(parameter.numel()) if parameter.grad is None else parameter.grad.flatten()


def _lora(name: str, shape: ModelShape) -> Lora | None:
    return shape.lora if shape.lora and name in shape.lora.targets else None
