"""Text as blocks of bytes, in an order that depends only on seed and epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import UsageError
from paceline.training.reference.learner import Tokens

VOCABULARY = 256
"""A token is a byte of UTF-8, so that no vocabulary file is needed."""
SUFFIXES = (".txt", ".tokens", ".raw", ".md")
SHIPPED = Path(__file__).with_name("paceline.txt")


@dataclass(frozen=True)
class TextBlocks:
    """Blocks of `length` + 1 tokens; in text the last token of a block is the first of the next."""

    text: npt.NDArray[np.integer[Any]]
    length: int
    count: int
    distance: int = 0
    """Between the first tokens of two blocks; 0: `length`."""

    def order(self, seed: int, epoch: int, *, shuffle: bool = True) -> npt.NDArray[np.int64]:
        """Order of blocks in an epoch; a function of seed and epoch, so that a resumed training sees the same data."""
        if not shuffle:
            return np.arange(self.count)
        order: npt.NDArray[np.int64] = np.random.default_rng((seed, epoch)).permutation(self.count)
        return order

    def take(self, numbers: npt.NDArray[np.int64]) -> Tokens:
        starts = numbers * (self.distance or self.length)
        tokens: Tokens = self.text[starts[:, None] + np.arange(self.length + 1)].astype(np.int64)
        return tokens


def text_blocks(where: str | Path, length: int, *, part: str = "train", most: int | None = None) -> TextBlocks:
    """Blocks of a text file, or of all text files in a directory (with wikitext: those whose names contain `part`)."""
    files = _files(Path(where), part)
    text = np.concatenate([np.fromfile(file, np.uint8) for file in files])
    count = (len(text) - 1) // length
    if count < 1:
        raise UsageError(
            f"{where}: {len(text):,} bytes of text are too few: a block needs {length + 1}", hint="use more text"
        )
    return TextBlocks(text, length, min(count, most) if most else count)


def encode(text: str) -> Tokens:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


def decode(tokens: Tokens) -> str:
    return tokens.astype(np.uint8).tobytes().decode(errors="replace")


def _files(where: Path, part: str) -> list[Path]:
    if where.is_file():
        return [where]
    if not where.is_dir():
        raise UsageError(f"{where}: no such file or directory", hint="pass a text file or a directory of text files")
    found = sorted(path for path in where.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    chosen = [path for path in found if part in path.name] or found
    if not chosen:
        raise UsageError(f"{where}: no text files found", hint=f"expected files that end in {', '.join(SUFFIXES)}")
    return chosen
