"""ResNet-50 (version 1.5: strides in the 3 × 3 convolutions) and BERT's encoder with masked tokens, in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, scaled_dot_product_attention

from paceline.training.workloads.model_flops import BLOCKS, EXPANSION
from paceline.training.workloads.options import WorkloadOptions


def make_model(options: WorkloadOptions) -> nn.Module:
    return ResNet50(options) if options.model == "resnet50" else Bert(options)


class _Bottleneck(nn.Module):
    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = middle * EXPANSION
        self.reduce = _convolution(inside, middle, 1)
        self.spatial = _convolution(middle, middle, 3, stride)
        self.expand = _convolution(middle, outside, 1)
        nn.init.zeros_(self.expand[1].weight)  # type: ignore[arg-type]
        self.shortcut = _convolution(inside, outside, 1, stride) if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.expand(relu(self.spatial(relu(self.reduce(x)))))
        return relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        width = options.width
        self.stem = nn.Sequential(*_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        stages, inside = [], width
        for stage, blocks in enumerate(BLOCKS):
            middle = width << stage
            for block in range(blocks):
                stages.append(_Bottleneck(inside, middle, 2 if stage and not block else 1))
                inside = middle * EXPANSION
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inside, options.classes)

    def forward(self, images: Tensor) -> Tensor:
        """[batch, classes]"""
        found: Tensor = self.head(self.stages(self.stem(images)).mean((2, 3)))
        return found


def _convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outside))


class _Layer(nn.Module):
    """Attention and feed-forward, each followed by its norm, as BERT has them."""

    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        hidden, self.heads = options.hidden_size, options.heads
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.attention_norm, self.norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, hidden)
        x = self.attention_norm(x + self.output(y))
        found: Tensor = self.norm(x + self.narrow(gelu(self.wide(x))))
        return found


class Bert(nn.Module):
    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        hidden = options.hidden_size
        self.tokens, self.positions = nn.Embedding(options.vocab_size, hidden), nn.Embedding(options.seq_length, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.Sequential(*(_Layer(options) for _ in range(options.layers)))
        self.transform, self.transform_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(options.vocab_size))
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=0.02 if hidden > 256 else hidden**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, length, vocabulary]; the head shares the embedding's weights."""
        x = self.norm(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        x = self.transform_norm(gelu(self.transform(self.layers(x))))
        return linear(x, self.tokens.weight, self.bias)
