"""Parameters and FLOPs of the workloads, from their shapes; a multiplication and an addition are two FLOPs.

FLOPs of a training step = 3 · forward: the backward pass computes two products of the size of each forward one.
Norms, activations and softmax are left out, as is usual for MFU.
"""

from __future__ import annotations

from typing import Iterator

from paceline.training.workloads.options import WorkloadOptions

BLOCKS = (3, 4, 6, 3)
"""Of ResNet-50's stages."""
EXPANSION = 4


def training_flops(options: WorkloadOptions) -> float:
    """Per sample, forward and backward."""
    return 3 * (resnet_forward(options) if options.model == "resnet50" else bert_forward(options))


def tokens_per_sample(options: WorkloadOptions) -> int | None:
    return options.seq_length if options.model == "bert" else None


def resnet_forward(options: WorkloadOptions) -> float:
    """Convolution: 2 · kernel² · channels in · channels out · pixels out."""
    convolutions = sum(
        2.0 * k * k * inside * outside * size * size for k, inside, outside, size in _convolutions(options)
    )
    return convolutions + 2.0 * options.width * 8 * EXPANSION * options.classes


def _convolutions(options: WorkloadOptions) -> Iterator[tuple[int, int, int, int]]:
    """Kernel, channels in and out, side of the output; strides are in the 3 × 3 convolutions (version 1.5)."""
    size = options.image_size // 2
    yield 7, 3, options.width, size
    size //= 2
    inside = options.width
    for stage, blocks in enumerate(BLOCKS):
        middle = options.width << stage
        for block in range(blocks):
            yield 1, inside, middle, size
            size = size // 2 if stage and not block else size
            yield 3, middle, middle, size
            yield 1, middle, middle * EXPANSION, size
            if not block:
                yield 1, inside, middle * EXPANSION, size
            inside = middle * EXPANSION


def bert_forward(options: WorkloadOptions) -> float:
    """Per layer and token: 24 · h² for the projections, 4 · s · h for attention; then 2 · h² and 2 · h · vocabulary."""
    hidden, length = options.hidden_size, options.seq_length
    layer = 24.0 * hidden * hidden + 4.0 * length * hidden
    return length * (options.layers * layer + 2.0 * hidden * hidden + 2.0 * hidden * options.vocab_size)
