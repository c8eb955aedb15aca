"""A gap: evidence that is missing, contradicts other evidence, or whose origin was guessed.

identity      a rank number was guessed
conflict      files contradict each other about whose they are
lost          a file could not be read
cut           a file ends early
missing       a rank lacks a file that its peers have
counts        a rank recorded fewer executions than its peers, or in its last steps than before
disagreement  two files of a rank differ
odd           a reader's warning
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.run.read_warning import GapKind, ReadWarning

CORE_TABLES = frozenset({"ranks", "groups", "steps", "collectives", "kernels", "transfers"})
"""Tables that every finding is built on; gaps elsewhere (memory, counters, timeline) leave most findings as they are."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class EvidenceGap:
    """One gap, of some ranks or (no ranks) of the run as a whole."""

    kind: GapKind
    ranks: tuple[int, ...]
    message: str
    file: str | None = None
    core: bool = True
    """Whether it concerns tables that every finding is built on."""

    def to_warning(self) -> ReadWarning:
        """In one line: of a single rank as that rank's warning, of several with their numbers."""
        if len(self.ranks) <= 1:
            rank, message = (self.ranks[0] if self.ranks else None), self.message
        else:
            rank, message = None, f"{named_ranks(self.ranks)}: {self.message}"
        return ReadWarning(rank, self.file, message, kind=self.kind, core=self.core)


def gap_of(warning: ReadWarning) -> EvidenceGap:
    """A reader's warning as a gap."""
    where = f"{warning.file}: " if warning.file else ""
    ranks = () if warning.rank is None else (warning.rank,)
    kind = "lost" if warning.lost else warning.kind
    return EvidenceGap(kind, ranks, where + warning.message, warning.file, warning.core)


def is_core(tables: frozenset[str]) -> bool:
    return bool(tables & CORE_TABLES)


def named_ranks(ranks: Sequence[int]) -> str:
    """
    >>> named_ranks([3])
    'rank 3'
    >>> named_ranks(range(12))
    'ranks 0, 1, 2, 3, 4, 5, 6, 7 … (12 in all)'
    """
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" … ({len(ranks)} in all)" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
