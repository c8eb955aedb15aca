"""What analyses answer with: named columns of equal length, from one SELECT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Texts = Sequence[str | None]


class Source(Protocol):
    """Where tables are asked: a Run, or a copy of its tables that answers faster."""

    def sql(self, query: str, /) -> duckdb.DuckDBPyRelation: ...


@dataclass(frozen=True)
class Table:
    """Numbers are float64 with NaN for unknown; texts are lists with None for unknown."""

    numbers: Mapping[str, Numbers]
    texts: Mapping[str, Texts]

    @property
    def length(self) -> int:
        return next((len(column) for column in (*self.numbers.values(), *self.texts.values())), 0)

    def map_texts(self, change: Callable[[str], str]) -> Table:
        texts = {
            name: [None if text is None else change(text) for text in column] for name, column in self.texts.items()
        }
        return Table(self.numbers, texts)


def query(run: Source, select: str) -> Table:
    """The result of one SELECT as columns."""
    numbers: dict[str, Numbers] = {}
    texts: dict[str, Texts] = {}
    for name, values in run.sql(select).fetchnumpy().items():
        if values.dtype == object:
            unknown = np.ma.getmaskarray(np.ma.asarray(values))
            texts[name] = [None if skip else str(value) for value, skip in zip(values, unknown, strict=True)]
        else:
            numbers[name] = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    return Table(numbers, texts)
