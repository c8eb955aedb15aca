"""torch traces (Kineto, `torch.profiler`): one JSON file per rank and recording, plain or gzip.

Files are known by their content. The rank is what the trace says of itself, else the number in its name, else the
next free one; traces of the same rank differ in `recorded`, and the newest is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from paceline.formats.kineto_groups import read_identity
from paceline.formats.kineto_head import Head, is_kineto, might_be_trace, read_trace_head
from paceline.formats.kineto_tables import TABLES, read_events, read_trace
from paceline.formats.reader import Part, Section
from paceline.storage.tree import File, Tree


@dataclass(frozen=True)
class KinetoReader:
    name: str = "kineto"

    def find(self, tree: Tree) -> Iterator[Part]:
        found = [(file, read_trace_head(file)) for file in tree.files if might_be_trace(file) and is_kineto(file)]
        yield from _with_missing_ranks([_part(self.name, file, head) for file, head in _numbered(found)], found)


READER = KinetoReader()


def _part(name: str, file: File, head: Head) -> Part:
    sections = (
        Section("identity", frozenset({"ranks", "groups"}), (file,), partial(read_identity, head)),
        Section("trace", TABLES, (file,), partial(read_trace, file.path, head)),
        # Apart from the rest: a timeline is half of what a trace becomes, and most who ask for findings never look at it.
        Section("events", frozenset({"events"}), (file,), partial(read_events, file.path, head)),
    )
    return Part(name, head.rank, file.relative, sections, recorded=head.recorded, notes=head.notes)


def _numbered(found: list[tuple[File, Head]]) -> Iterator[tuple[File, Head]]:
    """Give a rank to traces that do not say theirs, in the order of their names."""
    taken = {head.rank for _, head in found}
    free = 0
    for file, head in found:
        if head.rank is None:
            while free in taken:
                free += 1
            taken.add(free)
            note = f"{file.relative} does not say which rank it is; called rank {free}"
            head = replace(head, rank=free, notes=(*head.notes, note))
        yield file, head


def _with_missing_ranks(parts: list[Part], found: list[tuple[File, Head]]) -> list[Part]:
    """Say once, on the lowest rank, which ranks of the world left no trace here."""
    world = max((head.world for _, head in found), default=0)
    missing = sorted(set(range(world)) - {part.rank for part in parts})
    if not missing:
        return parts
    lowest = min(range(len(parts)), key=lambda index: parts[index].rank or 0)
    note = f"the traces are of a world of {world} ranks; no trace of {len(missing)} of them: {_spans(missing)}"
    return [replace(part, notes=(*part.notes, note)) if at == lowest else part for at, part in enumerate(parts)]


def _spans(numbers: list[int]) -> str:
    """
    >>> _spans([1, 2, 3, 7])
    '1–3, 7'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [f"{low}–{high}" if high > low else str(low) for low, high in spans]
    return ", ".join(texts[:8]) + (" …" if len(texts) > 8 else "")
