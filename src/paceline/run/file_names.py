"""What a store's Parquet files are called: nothing by another name is ever removed."""

from __future__ import annotations

import re

from paceline.tables import TABLES

_NAME = re.compile(rf"({'|'.join(TABLES)})-\d{{8,}}-\d{{5,}}(-[0-9a-f]{{8}})?\.parquet")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}(\.[0-9a-f]{{32}})?\.tmp")


def file_name(table: str, *, first: int, place: int, content: str) -> str:
    """Sorted by the batch's first unit and the file's place in it: rows come in the same order in every run, and sums of
    fractions are equal to the last bit. `content` is of what was read: two writers never mean different rows by one name."""
    return f"{table}-{first:08d}-{place:05d}-{content}.parquet"


def is_ours(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Left by a writer that was killed."""
    return _UNFINISHED.fullmatch(name) is not None
