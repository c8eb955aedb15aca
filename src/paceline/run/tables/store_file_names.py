"""Names of a store's Parquet files; files with other names are never removed."""

from __future__ import annotations

import re

from paceline.core.schema import TABLES

_NAME = re.compile(rf"({'|'.join(TABLES)})-\d{{8,}}-\d{{5,}}(-[0-9a-f]{{8}})?\.parquet")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}(\.[0-9a-f]{{32}})?\.tmp")


def file_name(table: str, *, first: int, position: int, content: str) -> str:
    """Sorted by the batch's first unit and the file's position in it, so that rows have the same order in every run and
    sums of floats are equal to the last bit. `content` is a hash of what was read: one name never means different rows.
    """
    return f"{table}-{first:08d}-{position:05d}-{content}.parquet"


def is_ours(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Left behind by a killed writer."""
    return _UNFINISHED.fullmatch(name) is not None
