"""A warning about a recording: what is missing or odd, in which file of which rank."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.message import Sentence, message, said_at
from paceline.formats.base import GapKind as GapKind  # part of a warning, here for the packages above


@dataclass(frozen=True)
class ReadWarning:
    rank: int | None
    file: str | None
    said: Sentence
    """In words that `message_in` finds; `message` in English."""
    line: int | None = None
    lost: bool = False
    """A whole section could not be read: a copy made from the tables would lack it."""
    kind: GapKind = "odd"
    core: bool = True
    """Whether it concerns tables that every finding is built on."""

    def __str__(self) -> str:
        return str(self.sentence)

    @property
    def message(self) -> str:
        return str(self.said)

    @property
    def sentence(self) -> Sentence:
        """With whose it is and where before it."""
        who = None if self.rank is None else message("place_rank", n=self.rank)
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return said_at(who, said_at(where, self.said))
