"""Reader of `cluster_analysis_output` (msprof-analyze): all ranks merged into a few files, often all that was kept.

Ranks are global and groups are sets of ranks. Totals are listed beside the operators they add up: they are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from paceline.formats.ascend_text.communication_json import (
    CommunicationOperation,
    MatrixLink,
    RecordedOperation,
    append_links,
    collective_columns,
    packet_columns,
    step_number,
)
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.cluster_analysis import FORMAT
from paceline.formats.csv_files import csv_rows
from paceline.formats.json_files import decode_file
from paceline.formats.units import integer, ns_from_us
from paceline.storage.file_tree import Tree

_TOTALS = ("Total Op Info", "total")
_RANK_SET = re.compile(r"^\((\d+(?:, \d+)*),?\)$")
_OPERATIONS = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, CommunicationOperation]]]])
_MATRIX = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, MatrixLink]]]])


@dataclass(frozen=True)
class ClusterAnalysisReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        for directory, files in tree.directories.items():
            sections = tuple(
                RecordingSection(
                    f"{name} {tables[0]}", frozenset(tables), (files[name],), partial(read, files[name].path)
                )
                for name, tables, read in _FILES
                if name in files
            )
            if sections:
                yield RankRecording(self.name, None, directory, sections)


READER = ClusterAnalysisReader()


def _read_steps(path: Path, sink: Sink) -> None:
    columns: dict[str, list[Any]] = defaultdict(list)
    for row in csv_rows(path, ("Step", "Type", "Index", "Computing", "Free")):
        if row["Type"] != "rank":
            continue
        computing, free = ns_from_us(row["Computing"]), ns_from_us(row["Free"])
        exposed = ns_from_us(row.get("Communication(Not Overlapped)"))
        columns["rank"].append(integer(row["Index"]))
        columns["step"].append(integer(row["Step"]) or 0)
        columns["duration"].append((computing or 0) + (exposed or 0) + (free or 0))
        columns["computing"].append(computing)
        columns["exposed"].append(exposed)
        columns["overlapped"].append(ns_from_us(row.get("Overlapped")))
        columns["communication"].append(ns_from_us(row.get("Communication")))
        columns["free"].append(free)
        columns["bubble"].append(ns_from_us(row.get("Bubble")))
        columns["preparing"].append(ns_from_us(row.get("Preparing")))
    ranks = sorted(set(columns["rank"]))
    sink.add("steps", columns)
    sink.add("ranks", {"rank": ranks, "format": READER.name, "path": path.parent.name} if ranks else {})


def _read_collectives(path: Path, sink: Sink) -> None:
    groups: dict[str, tuple[int, ...]] = {}
    recorded: dict[int, list[RecordedOperation]] = defaultdict(list)
    for members, rank, collective in _operations(path):
        recorded[rank].append(collective)
        if collective.group and (ranks := _members(members)):
            groups[collective.group] = ranks
    for rank, collectives in recorded.items():
        sink.add("collectives", {**collective_columns(collectives), "rank": rank})
    _add_groups(groups, sink)


def _read_packets(path: Path, sink: Sink) -> None:
    recorded: dict[int, list[RecordedOperation]] = defaultdict(list)
    for _, rank, collective in _operations(path):
        recorded[rank].append(collective)
    for rank, collectives in recorded.items():
        if columns := packet_columns(collectives, path):
            sink.add("packets", {**columns, "rank": rank})


def _operations(path: Path) -> Iterator[tuple[str, int, RecordedOperation]]:
    """(set of ranks, rank, operator) of all entries except totals."""
    for members, steps in decode_file(_OPERATIONS, path).items():
        for step_name, operations in steps.items():
            step = step_number(step_name, path)
            for name, by_rank in operations.items():
                if not name.startswith(_TOTALS):
                    for rank, operation in by_rank.items():
                        yield members, int(rank), RecordedOperation(step, name, operation)


def _read_matrix(path: Path, sink: Sink) -> None:
    columns: dict[str, list[Any]] = defaultdict(list)
    for steps in decode_file(_MATRIX, path).values():
        for step_name, operations in steps.items():
            step = step_number(step_name, path)
            groups_with_total = {name.partition("@")[2] for name in operations if "-total@" in name}
            for name, links in operations.items():
                kind, _, group = name.partition("@")
                if name.startswith(_TOTALS) or (group in groups_with_total and not kind.endswith("-total")):
                    continue
                append_links(columns, step, name, links, path)
    sink.add("transfers", {**columns, "rank": columns["src"], "scope": "global"} if columns else {})


def _members(text: str) -> tuple[int, ...]:
    """(0, 8) from "(0, 8)"; () for the p2p entry, which mixes groups."""
    found = _RANK_SET.match(text)
    return tuple(sorted(map(int, found[1].split(", ")))) if found else ()


def _add_groups(groups: dict[str, tuple[int, ...]], sink: Sink) -> None:
    rows = [(group, index, rank) for group, ranks in groups.items() for index, rank in enumerate(ranks)]
    if rows:
        names, indexes, ranks = zip(*rows, strict=True)
        sink.add("groups", {"group": names, "kind": "other", "index": indexes, "rank": ranks})


_FILES = (
    ("cluster_step_trace_time.csv", ("steps", "ranks"), _read_steps),
    ("cluster_communication.json", ("collectives", "groups"), _read_collectives),
    ("cluster_communication.json", ("packets",), _read_packets),
    ("cluster_communication_matrix.json", ("transfers",), _read_matrix),
)
