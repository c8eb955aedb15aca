"""Which part supplies which table of a rank, when a source holds a rank more than once.

Parts of one rank and format with the same job are cycles of one recording: all are used. Otherwise the newest
recording is used and the others are named in a warning. Between formats the preferred one supplies a table, and the
others only what it lacks; what identifies ranks and groups is taken from everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.formats.reader import Part
from paceline.run.batch import Warning

SHARED = frozenset({"ranks", "groups"})


@dataclass(frozen=True)
class Chosen:
    part: Part
    tables: frozenset[str]


def choose(parts: Iterable[Part]) -> tuple[list[Chosen], list[Warning]]:
    """Parts in order of preference, each with the tables it supplies."""
    by_rank: dict[int | None, list[Part]] = defaultdict(list)
    warnings: list[Warning] = []
    for part in parts:
        by_rank[part.rank].append(part)
        warnings += [Warning(part.rank, None, note) for note in part.notes]
        warnings += [Warning(each.rank, each.file, each.message, each.line) for each in part.notices]
    unranked = by_rank.pop(None, [])
    chosen: list[Chosen] = []
    for rank, candidates in sorted(by_rank.items(), key=lambda item: item[0] or 0):
        supplied: set[str] = set()
        for kept in _by_format(rank, candidates, warnings):
            tables = frozenset().union(*(part.tables for part in kept)) - supplied | SHARED
            chosen += [Chosen(part, part.tables & tables) for part in kept]
            supplied |= tables
    return chosen + _whole_cluster(unranked, chosen), warnings


def _whole_cluster(parts: list[Part], ranked: list[Chosen]) -> list[Chosen]:
    """Parts that hold many ranks supply what no rank's own recording does: outputs often lie beside their inputs."""
    supplied = frozenset().union(*(entry.tables for entry in ranked)) - SHARED
    chosen = []
    for part in parts:
        own = part.tables - SHARED
        if own and own <= supplied:
            continue
        chosen.append(Chosen(part, part.tables - supplied))
        supplied |= own
    return chosen


def _by_format(rank: int | None, candidates: list[Part], warnings: list[Warning]) -> Iterable[list[Part]]:
    """For each format in order of preference: the newest recording, with all its cycles."""
    formats: dict[str, list[Part]] = defaultdict(list)
    for part in candidates:
        formats[part.format].append(part)
    for same_format in formats.values():
        newest = max(same_format, key=lambda part: (part.recorded, part.root))
        kept = [part for part in same_format if part is newest or (part.job and part.job == newest.job)]
        if left := [part for part in same_format if part not in kept]:
            others = ", ".join(part.root or "." for part in left[:3]) + (" …" if len(left) > 3 else "")
            said = f"recorded more than once; this is the newest, left out: {others}"
            warnings.append(Warning(rank, newest.root, said))
        yield kept
