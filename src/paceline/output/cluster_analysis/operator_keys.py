"""How the files name an operator, and rows read in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.run.run import Run

TOTAL = "Total Op Info"
_CHUNK = 20_000

KEYED = """
    -- The name of an operator inside a step: HCCL's own, or one in its style that carries the sequence number.
    CASE WHEN name LIKE 'hcom\\_%' ESCAPE '\\' OR "group" IS NULL OR sequence IS NULL THEN name
         ELSE 'hcom_' || {spelled} || '__' || right(label, 3) || '_' || sequence || '_1' END
"""


def read_rows(run: Run, query: str) -> Iterator[tuple[Any, ...]]:
    cursor = run.connection.execute(query)
    while rows := cursor.fetchmany(_CHUNK):
        yield from rows


def entry_key(entry: str, label: str) -> str:
    return f"{entry}@{label}" if label else entry


def rounded_ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0
