"""ResNet-50 (version 1.5: strides in the 3 × 3 convolutions) and BERT's encoder with masked tokens, in MindSpore."""

from __future__ import annotations

import math
from typing import Any

from mindspore.common.initializer import Normal, initializer

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from paceline.training.workloads.model_flops import BLOCKS, EXPANSION
from paceline.training.workloads.options import WorkloadOptions


def make_model(options: WorkloadOptions) -> Any:
    return ResNet50(options) if options.model == "resnet50" else Bert(options)


class _Bottleneck(nn.Cell):  # type: ignore[misc]
    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = middle * EXPANSION
        self.reduce = _convolution(inside, middle, 1)
        self.spatial = _convolution(middle, middle, 3, stride)
        self.expand = _convolution(middle, outside, 1, gamma="zeros")
        self.has_shortcut = stride > 1 or inside != outside
        if self.has_shortcut:
            self.shortcut = _convolution(inside, outside, 1, stride)
        self.relu = nn.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        y = self.expand(self.relu(self.spatial(self.relu(self.reduce(x)))))
        return self.relu(y + (self.shortcut(x) if self.has_shortcut else x))


class ResNet50(nn.Cell):  # type: ignore[misc]
    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        width = options.width
        self.stem, self.relu = _convolution(3, width, 7, 2), nn.ReLU()
        self.pool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        stages, inside = [], width
        for stage, blocks in enumerate(BLOCKS):
            middle = width << stage
            for block in range(blocks):
                stages.append(_Bottleneck(inside, middle, 2 if stage and not block else 1))
                inside = middle * EXPANSION
        self.stages = nn.SequentialCell(stages)
        self.head = nn.Dense(inside, options.classes)

    def construct(self, images: Tensor) -> Tensor:
        """[batch, classes]"""
        return self.head(self.stages(self.pool(self.relu(self.stem(images)))).mean((2, 3)))


def _convolution(inside: int, outside: int, kernel: int, stride: int = 1, gamma: str = "ones") -> Any:
    return nn.SequentialCell(
        nn.Conv2d(inside, outside, kernel, stride, pad_mode="pad", padding=kernel // 2, weight_init="he_uniform"),
        nn.BatchNorm2d(outside, gamma_init=gamma),
    )


class _Layer(nn.Cell):  # type: ignore[misc]
    """Attention and feed-forward, each followed by its norm, as BERT has them."""

    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        hidden, self.heads = options.hidden_size, options.heads
        self.qkv, self.output = _dense(hidden, 3 * hidden), _dense(hidden, hidden)
        self.wide, self.narrow = _dense(hidden, 4 * hidden), _dense(4 * hidden, hidden)
        self.attention_norm, self.norm = nn.LayerNorm((hidden,)), nn.LayerNorm((hidden,))

    def construct(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        size = hidden // self.heads
        split = ops.transpose(self.qkv(x).reshape(batch, length, 3, self.heads, size), (2, 0, 3, 1, 4))
        scores = ops.matmul(split[0], ops.transpose(split[1], (0, 1, 3, 2))) / math.sqrt(size)
        y = ops.transpose(ops.matmul(ops.softmax(scores, -1), split[2]), (0, 2, 1, 3)).reshape(batch, length, hidden)
        x = self.attention_norm(x + self.output(y))
        return self.norm(x + self.narrow(ops.gelu(self.wide(x))))


class Bert(nn.Cell):  # type: ignore[misc]
    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__()
        hidden, vocabulary = options.hidden_size, options.vocab_size
        self.tokens = Parameter(_random(vocabulary, hidden))
        self.positions = Parameter(_random(options.seq_length, hidden))
        self.norm, self.transform_norm = nn.LayerNorm((hidden,)), nn.LayerNorm((hidden,))
        self.layers = nn.SequentialCell([_Layer(options) for _ in range(options.layers)])
        self.transform = _dense(hidden, hidden)
        self.bias = Parameter(initializer("zeros", (vocabulary,), ms.float32))

    def construct(self, tokens: Tensor) -> Tensor:
        """[batch, length, vocabulary]; the head shares the embedding's weights."""
        x = self.norm(ops.gather(self.tokens, tokens, 0) + self.positions[: tokens.shape[1]])
        x = self.transform_norm(ops.gelu(self.transform(self.layers(x))))
        return ops.matmul(x, self.tokens.T) + self.bias


def _dense(inside: int, outside: int) -> Any:
    deviation = 0.02 if inside > 256 else min(inside, outside) ** -0.5
    return nn.Dense(inside, outside, weight_init=Normal(deviation))


def _random(rows: int, hidden: int) -> Any:
    return initializer(Normal(0.02 if hidden > 256 else hidden**-0.5), (rows, hidden), ms.float32)
