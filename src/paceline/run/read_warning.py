"""A warning about a recording: what is missing or odd, in which file of which rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GapKind = Literal["identity", "conflict", "lost", "cut", "missing", "counts", "disagreement", "odd"]
"""What a gap in the evidence is; see run/evidence/gap.py."""


@dataclass(frozen=True)
class ReadWarning:
    rank: int | None
    file: str | None
    message: str
    line: int | None = None
    lost: bool = False
    """A whole section could not be read: a copy made from the tables would lack it."""
    kind: GapKind = "odd"
    core: bool = True
    """Whether it concerns tables that every finding is built on."""

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank is not None else ""
        where = f"{self.file}:{self.line}" if self.file and self.line else (self.file or "")
        return ": ".join(text for text in (who, where, self.message) if text)
