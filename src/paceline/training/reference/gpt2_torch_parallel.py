"""GPT-2 in torch, tensor- and pipeline-parallel with gloo: each rank holds and saves its slices of its stage's parameters.

Stages work through the micro-batches (gradient_accumulation_steps) forwards, then backwards. The head shares the embedding's
weights: the last stage has a copy, whose gradients are added to those of the first stage, which updates and sends it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.functional import cross_entropy, linear

from paceline.core.errors import PacelineError, UsageError
from paceline.training.reference.gpt2_torch import Block, Linear, TorchLearner, gradient_of
from paceline.training.reference.learner import Array, Optimizer, Score, StepOutcome, Tokens
from paceline.training.reference.parallel import ParallelSizes, Place, check_sizes, own_part, sharded_axis, stage_of
from paceline.training.reference.shape import ModelShape, parameters

_TIED = "token_embedding.weight"


class _SumOfGradients(torch.autograd.Function):
    """Where sharded layers begin: each rank has the gradient of its part of the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        torch.distributed.all_reduce(total, group=ctx.group)
        return total, None


class _SumOfOutputs(torch.autograd.Function):
    """Where sharded layers end."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        total = x.contiguous().clone()
        torch.distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _InputSharded(nn.Linear):
    """A linear layer of which each rank has some of the inputs."""

    def __init__(self, inside: int, outside: int, group: ProcessGroup) -> None:
        super().__init__(inside, outside)
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = _SumOfOutputs.apply(linear(x, self.weight), self._group)  # type: ignore[no-untyped-call]
        return total + self.bias


class Stage(nn.Module):
    """Tokens (first stage) or activations in, activations or logits (last stage) out."""

    def __init__(self, shape: ModelShape, place: Place, group: ProcessGroup) -> None:
        super().__init__()
        self.first, self.last = place.is_first, place.is_last
        if place.is_first or place.is_last:
            self.token_embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        if place.is_first:
            self.position_embedding = nn.Embedding(shape.seq_length, shape.hidden_size)
        self.dropout = nn.Dropout(shape.dropout)
        own = [n for n in range(shape.num_layers) if stage_of(f"blocks.{n}.", shape, place.sizes.stages) == place.stage]
        self.blocks = nn.ModuleDict({str(number): _block(shape, place.sizes.model, group) for number in own})
        if place.is_last:
            self.final_norm = nn.LayerNorm(shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = self.dropout(self.token_embedding(x) + self.position_embedding(torch.arange(x.shape[1])))
        for block in self.blocks.values():
            x = block(x)
        return linear(self.final_norm(x), self.token_embedding.weight) if self.last else x


def _block(shape: ModelShape, count: int, group: ProcessGroup) -> Block:
    block, width = Block(shape), shape.hidden_size
    if count == 1:
        return block
    attention, mlp = block.attention, block.mlp
    attention.heads = shape.num_heads // count
    attention.query, attention.key, attention.value = (Linear(width, width // count, None) for _ in range(3))
    attention.output = _InputSharded(width // count, width, group)
    mlp.wide = Linear(width, 4 * width // count, None)
    mlp.narrow = _InputSharded(4 * width // count, width, group)
    for part in (attention, mlp):
        part.register_forward_pre_hook(lambda _, given: (_SumOfGradients.apply(given[0], group),))  # type: ignore[no-untyped-call]
    return block


class ParallelTorchLearner(TorchLearner):
    def __init__(self, shape: ModelShape, optimizer: Optimizer, seed: int, sizes: ParallelSizes) -> None:
        check_sizes(shape, sizes)
        if shape.lora is not None:
            raise UsageError("LoRA is not sharded", hint="set parallel_config.model_parallel and pipeline_stage to 1")
        self._sizes = sizes
        self._full = parameters(shape)
        super().__init__(shape, optimizer, seed)

    def _make_model(self, shape: ModelShape, seed: int) -> nn.Module:
        place = self.place = self._sizes.place(self.rank)
        sizes = self._sizes
        self.data_rank, self.data_size = place.data, sizes.data
        # Ranks that share activations draw the same dropout.
        torch.manual_seed(seed + place.data + place.stage * sizes.data)
        all_of = {"data": range(sizes.data), "model": range(sizes.model), "stage": range(sizes.stages)}
        self._data_group = self._group({"data": all_of["data"]})
        self._model_group = self._group({"model": all_of["model"]})
        self._replica_group = self._group({"model": all_of["model"], "stage": all_of["stage"]})
        self._tied_group = self._group({"stage": sorted({0, sizes.stages - 1})})
        return Stage(shape, place, self._model_group)

    def _group(self, vary: Mapping[str, Sequence[int]]) -> ProcessGroup:
        """The ranks whose place differs from mine in `vary` only; every rank creates every group, in the same order."""
        mine: ProcessGroup | None = None
        known: set[tuple[int, ...]] = set()
        for rank in range(self._sizes.ranks):
            place = self._sizes.place(rank)
            members = [place.rank()]
            for axis, values in vary.items():
                places = [self._sizes.place(member) for member in members]
                members = sorted({each.rank(**{axis: value}) for each in places for value in values})
            if rank not in members or tuple(members) in known:
                continue
            known.add(tuple(members))
            made = torch.distributed.new_group(members)
            if self.rank in members:
                mine = made
        return mine if mine is not None else torch.distributed.new_group([self.rank])

    @property
    def _has_copy(self) -> bool:
        """Whether the embedding here is the last stage's copy."""
        return not self.place.is_first and self.place.is_last

    def _is_own(self, name: str) -> bool:
        return not (self._has_copy and name == _TIED)

    # -- a step ----------------------------------------------------------------------------------------------------------

    def train_step(self, batches: Tokens, learning_rate: float, loss_scale: float) -> StepOutcome:
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        loss = self._forward_backward(torch.from_numpy(batches), loss_scale)
        gradients = self._mean_gradients() / loss_scale
        squares, loss_sum = self._over_replica([self._squares(gradients), float(loss)])
        loss_mean = loss_sum / self._sizes.model
        if self._sizes.data > 1:
            mean = torch.tensor([loss_mean], dtype=torch.float64)
            torch.distributed.all_reduce(mean, group=self._data_group)
            loss_mean = mean.item() / self._sizes.data
        if not math.isfinite(squares):
            return StepOutcome(loss_mean, overflow=True)
        self._apply(gradients, learning_rate, math.sqrt(squares))
        self._send_tied()
        return StepOutcome(loss_mean, overflow=False)

    def _forward_backward(self, batches: Tensor, loss_scale: float) -> Tensor:
        """All micro-batches forwards, then all backwards; the loss is known to the last stage, elsewhere 0."""
        place, total = self.place, torch.zeros(())
        passed: list[tuple[Tensor, Tensor]] = []
        for batch in batches:
            given = batch[:, :-1] if place.is_first else self._received(batch)
            out = self.model(given)
            if place.is_last:
                out = cross_entropy(out.transpose(1, 2), batch[:, 1:]) / len(batches)
                total = total + out.detach()
            else:
                torch.distributed.send(out.detach().contiguous(), place.rank(stage=place.stage + 1))
            passed.append((given, out))
        for given, out in passed:
            if place.is_last:
                torch.autograd.backward(out * loss_scale)
            else:
                gradient = torch.empty_like(out)
                torch.distributed.recv(gradient, place.rank(stage=place.stage + 1))
                torch.autograd.backward(out, gradient)
            if not place.is_first:
                assert given.grad is not None
                torch.distributed.send(given.grad.contiguous(), place.rank(stage=place.stage - 1))
        return total

    def _received(self, batch: Tensor) -> Tensor:
        width = self._full[_TIED][1]
        given = torch.empty(batch.shape[0], batch.shape[1] - 1, width)
        torch.distributed.recv(given, self.place.rank(stage=self.place.stage - 1))
        return given.requires_grad_()

    def _mean_gradients(self) -> Tensor:
        """Of the parameters that this rank updates, in one vector, averaged over the data-parallel ranks."""
        if self._sizes.stages > 1 and (self.place.is_first or self.place.is_last):
            tied = self.model.token_embedding.weight
            shared = gradient_of(tied).clone()
            torch.distributed.all_reduce(shared, group=self._tied_group)
            tied.grad = shared.view_as(tied)
        row = torch.cat([gradient_of(parameter) for parameter in self._trained.values()])
        if self._sizes.data > 1:
            torch.distributed.all_reduce(row, group=self._data_group)
            row /= self._sizes.data
        return row

    def _squares(self, gradients: Tensor) -> float:
        """Sum of squares; what every tensor-parallel rank holds counts once."""
        at, total = 0, 0.0
        for name, parameter in self._trained.items():
            part = gradients[at : at + parameter.numel()]
            at += parameter.numel()
            if sharded_axis(name) is not None or self.place.model == 0:
                total += float((part.double() ** 2).sum())
        return total

    def _over_replica(self, values: list[float]) -> list[float]:
        summed = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(summed, group=self._replica_group)
        return [float(each) for each in summed]

    def _send_tied(self) -> None:
        if self._sizes.stages > 1 and (self.place.is_first or self.place.is_last):
            torch.distributed.broadcast(
                self.model.token_embedding.weight.detach(), self.place.rank(stage=0), group=self._tied_group
            )

    # -- state -----------------------------------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, Any]:
        return {name: value for name, value in super().weights().items() if self._is_own(name)}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Full values, or slices of this rank."""
        for name, parameter in self.model.named_parameters():
            if not self._is_own(name):
                continue
            if name not in weights:
                raise PacelineError(f"{name} not found in the checkpoint", hint="it belongs to another model or stage")
            value = own_part(name, weights[name], self._full[name], self.place)
            self._copy(name, parameter, value)
        self._send_tied()

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None:
        cut = dict(state)
        for name in self._trained:
            for kind in ("adam_m", "adam_v"):
                if f"{kind}.{name}" in state:
                    cut[f"{kind}.{name}"] = own_part(name, state[f"{kind}.{name}"], self._full[name], self.place)
        super().load_optimizer_state(cut)

    def score(self, batch: Tokens) -> Score:
        raise self._only_training()

    def next_logits(self, tokens: Tokens) -> Array:
        raise self._only_training()

    @staticmethod
    def _only_training() -> UsageError:
        return UsageError(
            "a tensor- or pipeline-parallel model only trains here",
            hint="evaluate its checkpoint with model_parallel 1 and --src_strategy_path_or_dir STRATEGY",
        )
