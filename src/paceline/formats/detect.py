"""Which formats lie in a tree: every reader looks, by content; the list order is the order of preference."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from paceline.formats.reader import Part, Reader
from paceline.storage.tree import Tree

READERS: tuple[str, ...] = (
    "paceline_parquet",
    "light",
    "ascend_text",
    "ascend_db",
    "msprof",
    "mindinsight",
    "kineto",
    "osdi_straggler",
    "cluster_analysis",
    "rank_table",
)
"""Modules of this package, most preferred first: where two formats hold the same rank and table, the first wins."""


def readers() -> list[Reader]:
    return [import_module(f"paceline.formats.{name}").READER for name in READERS]


def find_parts(tree: Tree) -> Iterator[Part]:
    for reader in readers():
        yield from reader.find(tree)
