"""Which formats lie in a tree: every reader looks, by content; the list order is the order of preference."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from paceline.formats.reader import Part, Reader
from paceline.storage.tree import Tree

READERS: dict[str, tuple[str, ...]] = {
    "paceline_parquet": ("paceline.json",),
    "light": (".jsonl",),
    "ascend_text": (".csv", ".json", ".txt"),
    "ascend_db": (".db",),
    "msprof": (".csv", ".json", *"0123456789"),  # info.json.0
    "mindinsight": (".csv", ".json", ".txt", ".pb", ".trace"),
    "kineto": (".json", ".json.gz"),
    "osdi_straggler": (".parquet",),
    "cluster_analysis": (".csv", ".json"),
    "rank_table": (".json",),
}
"""Modules of this package, most preferred first: where two formats hold the same rank and table, the first wins.

Each with what the names of its files end in: where no file does, its module is not even imported. Importing all of them
takes longer than reading a small trace.
"""


def readers() -> list[Reader]:
    return [_reader(name) for name in READERS]


def find_parts(tree: Tree) -> Iterator[Part]:
    for name, endings in READERS.items():
        if any(file.relative.endswith(endings) for file in tree.files):
            yield from _reader(name).find(tree)


def _reader(name: str) -> Reader:
    reader: Reader = import_module(f"paceline.formats.{name}").READER
    return reader
