"""Synthetic data that can be learnt, a function of the seed alone: every rank makes its own part of the same data.

images       a coarse pattern per class, in noise
sentences    after each token follows its successor, in nine of ten places; a seventh of the tokens is masked
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.training.workloads.options import WorkloadOptions

Array = npt.NDArray[Any]
IGNORED = -100
"""Target of a token that is not to be predicted."""
_NOISE = 1.0
_FOLLOWS = 0.9
_MASKED = 0.15
_TRAIN, _EVALUATE = 0, 1


@dataclass(frozen=True)
class Samples:
    inputs: Array
    targets: Array

    def take(self, numbers: Array) -> Samples:
        return Samples(self.inputs[numbers], self.targets[numbers])

    def __len__(self) -> int:
        return len(self.targets)


def training_part(options: WorkloadOptions, rank: int, ranks: int) -> Samples:
    """This rank's part; all parts have the same size, so that no rank waits for another's last batch."""
    return _make(options, options.train_samples // ranks, (options.seed, _TRAIN, rank))


def evaluation_part(options: WorkloadOptions, rank: int, ranks: int) -> Samples:
    count = options.eval_samples // ranks + (rank < options.eval_samples % ranks)
    return _make(options, count, (options.seed, _EVALUATE, rank))


def _make(options: WorkloadOptions, count: int, seed: tuple[int, ...]) -> Samples:
    random = np.random.default_rng(seed)
    return _images(options, count, random) if options.model == "resnet50" else _sentences(options, count, random)


def _images(options: WorkloadOptions, count: int, random: np.random.Generator) -> Samples:
    """[count, 3, size, size]"""
    patterns = np.random.default_rng(options.seed).standard_normal((options.classes, 3, 4, 4)).astype(np.float32)
    targets = random.integers(0, options.classes, count)
    scale = options.image_size // 4
    images = np.kron(patterns[targets], np.ones((1, 1, scale, scale), np.float32))
    images += _NOISE * random.standard_normal(images.shape, np.float32)
    return Samples(images, targets)


def _sentences(options: WorkloadOptions, count: int, random: np.random.Generator) -> Samples:
    """[count, length]; token 0 is the mask."""
    words = options.vocab_size - 1
    successor = np.random.default_rng(options.seed).permutation(words)
    shape = (count, options.seq_length)
    tokens = random.integers(0, words, shape)
    follows = random.random(shape) < _FOLLOWS
    for place in range(1, options.seq_length):
        tokens[:, place] = np.where(follows[:, place], successor[tokens[:, place - 1]], tokens[:, place])
    tokens += 1
    masked = random.random(shape) < _MASKED
    masked[:, 0] |= ~masked.any(1)  # every sentence has something to predict
    return Samples(np.where(masked, 0, tokens), np.where(masked, tokens, IGNORED))
