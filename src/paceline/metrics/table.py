"""Result tables of metrics: named columns of equal length, from one SELECT or from arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import duckdb

Numbers = NDArray[np.float64]
Texts = Sequence[str | None]


class Source(Protocol):
    """Where tables are queried: a Run, or a copy of its tables that answers faster."""

    def sql(self, query: str, /, params: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation: ...


class RunTables(Source, Protocol):
    """The tables of a run, read when they are first needed."""

    connection: duckdb.DuckDBPyConnection
    derived: dict[Hashable, object]
    """What was worked out of this run before."""

    def load(self, names: Iterable[str], /) -> None: ...

    @property
    def formats(self) -> list[str]: ...


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


def query(run: Source, select: str, **params: object) -> Table:
    """The result of one SELECT as columns; `$name` in it is the parameter of that name."""
    return as_table(run.sql(select, params=params or None).fetchnumpy())


def as_table(columns: Mapping[str, NDArray[Any]]) -> Table:
    """Columns as DuckDB gives them: masked where unknown, objects where they are texts."""
    numbers: dict[str, Numbers] = {}
    texts: dict[str, Texts] = {}
    for name, values in columns.items():
        if values.dtype == object:
            unknown = np.ma.getmaskarray(np.ma.asarray(values))
            texts[name] = [None if skip else str(value) for value, skip in zip(values, unknown, strict=True)]
        else:
            numbers[name] = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    return Table(numbers, texts)
