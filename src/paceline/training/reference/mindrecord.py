"""Blocks of tokens from MindRecord files, the format of MindFormers' guides; MindSpore reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.core.errors import UsageError
from paceline.training.reference.text_data import TextBlocks

SUFFIX = ".mindrecord"
COLUMN = "input_ids"
_INDEX = ".db"
"""MindSpore writes NAME.db, an SQLite index, beside each file."""


def is_mindrecord(file: Path) -> bool:
    """By its name, also of shards (wiki.mindrecord0), or by the index beside it."""
    return (SUFFIX in file.name and not file.name.endswith(_INDEX)) or file.with_name(f"{file.name}{_INDEX}").is_file()


def mindrecord_files(where: Path) -> list[Path]:
    candidates = [where] if where.is_file() else sorted(path for path in where.rglob("*") if path.is_file())
    return [path for path in candidates if is_mindrecord(path)]


def mindrecord_blocks(files: list[Path], length: int, vocabulary: int, most: int | None = None) -> TextBlocks:
    """The first `length` + 1 tokens of every record."""
    try:
        from mindspore.mindrecord import FileReader
    except ImportError as error:
        raise UsageError(
            f"{files[0]} is a MindRecord file, and MindSpore, which reads them, is not installed",
            hint="pip install mindspore, or pass text: a file or a directory of .txt files",
        ) from error
    rows = []
    for file in files:
        reader = FileReader(str(file))
        for record in reader.get_next():
            rows.append(_tokens(record.get(COLUMN), file, length, vocabulary))
            if len(rows) == most:
                break
        reader.close()
    if not rows:
        raise UsageError(f"{files[0]}: contains no records")
    return TextBlocks(np.concatenate(rows), length, len(rows), distance=length + 1)


def _tokens(value: object, file: Path, length: int, vocabulary: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if value is None:
        raise UsageError(f"{file}: its records have no column {COLUMN}", hint="as MindFormers' preprocessing writes it")
    tokens = np.asarray(value).reshape(-1).astype(np.int64)
    if len(tokens) < length + 1:
        raise UsageError(
            f"{file}: a record has {len(tokens)} tokens, and seq_length {length} needs {length + 1}",
            hint=f"--model.model_config.seq_length {len(tokens) - 1}",
        )
    if int(tokens.max()) >= vocabulary:
        raise UsageError(
            f"{file}: token {int(tokens.max())} is not in a vocabulary of {vocabulary}",
            hint=f"--model.model_config.vocab_size {int(tokens.max()) + 1}, or that of its tokenizer",
        )
    return tokens[: length + 1]
