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

from dataclasses import dataclass

from paceline.core.message import Sentence, ranks_named, said_at
from paceline.run.read_warning import GapKind, ReadWarning

CORE_TABLES = frozenset({"ranks", "groups", "steps", "collectives", "kernels", "transfers"})
"""Tables that every finding is built on; gaps elsewhere (memory, counters, timeline) leave most findings as they are."""


@dataclass(frozen=True)
class EvidenceGap:
    """One gap, of some ranks or (no ranks) of the run as a whole."""

    kind: GapKind
    ranks: tuple[int, ...]
    said: Sentence
    file: str | None = None
    core: bool = True
    """Whether it concerns tables that every finding is built on."""

    @property
    def message(self) -> str:
        return str(self.said)

    def to_warning(self) -> ReadWarning:
        """In one line: of a single rank as that rank's warning, of several with their numbers."""
        if len(self.ranks) <= 1:
            rank, said = (self.ranks[0] if self.ranks else None), self.said
        else:
            rank, said = None, said_at(ranks_named(self.ranks), self.said)
        return ReadWarning(rank, self.file, said, kind=self.kind, core=self.core)


def gap_of(warning: ReadWarning) -> EvidenceGap:
    """A reader's warning as a gap."""
    ranks = () if warning.rank is None else (warning.rank,)
    kind = "lost" if warning.lost else warning.kind
    return EvidenceGap(kind, ranks, said_at(warning.file, warning.said), warning.file, warning.core)


def is_core(tables: frozenset[str]) -> bool:
    return bool(tables & CORE_TABLES)
