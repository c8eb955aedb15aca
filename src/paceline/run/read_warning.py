"""A warning about a recording: what is missing or odd, in which file of which rank."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.formats.base import GapKind as GapKind  # part of a warning, here for the packages above


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
