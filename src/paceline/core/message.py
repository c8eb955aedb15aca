"""What readers and benchmarks have to say, as a key and values: it is put into words where somebody reads it.

What notices something may be far from what shows it, in another process, on another day and in another language: the message
is stored as it was made, and `message_in` says it. Its sentences are those of core/texts/messages.json. A reader of somebody
else may pass its own sentence instead, which is shown as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from paceline.core.i18n import Language, catalogue, text
from paceline.core.text_encoding import printable

_DEEPEST = 64
"""Messages inside messages; more come from a damaged file only."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class Message:
    """A sentence of messages.json; values are names, numbers, or other messages."""

    key: str
    values: dict[str, Message | str | int | float]

    def __str__(self) -> str:
        return message_in("en", self)

    def __hash__(self) -> int:
        return hash((self.key, tuple(self.values.items())))


Sentence = Union[Message, str]
"""A message, or what somebody else's reader said."""


def message(key: str, /, **values: object) -> Message:
    """Something to say; errors among the values become what they say.

    >>> str(message("cut_rows", n=3)), str(message("at", place="a.csv:3", said=message("empty")))
    ('3 cut-off rows are left out', 'a.csv:3: is empty')
    """
    return Message(key, {name: _value(value) for name, value in values.items()})


def said_at(place: Sentence | None, said: Sentence) -> Sentence:
    """With where it is before it."""
    return message("at", place=place, said=said) if place else said


def listed(said: Sequence[Sentence]) -> Sentence:
    """
    >>> str(listed(["a", "b", "c"]))
    'a, b, c'
    """
    first, *others = said
    return message("list", first=first, others=listed(others)) if others else first


def in_lines(said: Sequence[Sentence]) -> Sentence:
    """One below the other, as errors of several lines are printed."""
    first, *others = said
    return message("lines", first=first, others=in_lines(others)) if others else first


def ranks_named(ranks: Sequence[int]) -> Message:
    """
    >>> [str(ranks_named([3])), str(ranks_named(range(12)))]
    ['rank 3', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 … (12 in all)']
    """
    if len(ranks) == 1:
        return message("place_rank", n=ranks[0])
    named = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return (
        message("place_ranks_more", list=named, n=len(ranks))
        if len(ranks) > _MOST_NAMED
        else message("place_ranks", list=named)
    )


def message_in(language: Language, sentence: Sentence) -> str:
    """A sentence in a language.

    >>> message_in("zh", message("at", place=message("place_rank", n=3), said=message("empty")))
    '3 号卡：文件为空'
    """
    return sentence if isinstance(sentence, str) else _said(sentence, language, _DEEPEST)


def _value(value: object) -> Message | str | int | float:
    if isinstance(value, Exception):
        value = getattr(value, "said", value)  # ours, see PacelineError
    if isinstance(value, Message) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    return float(value) if isinstance(value, float) and math.isfinite(value) else printable(value)


def _said(said: Message, language: Language, deepest: int) -> str:
    """A key or values that this version does not know are those of a file of another version."""
    values = {name: _shown(value, language, deepest) for name, value in said.values.items()}
    key = f"messages.{said.key}"
    try:
        return text(key, language, **values) if key in catalogue("messages") else _unknown(said.key, values)
    except (KeyError, ValueError):
        return _unknown(said.key, values)


def _shown(value: Message | str | int | float, language: Language, deepest: int) -> str | int | float:
    if isinstance(value, Message):
        return _Text(_said(value, language, deepest - 1) if deepest else "…")
    return _Text(value) if isinstance(value, str) else value


class _Text(str):
    """In place of a number, too large or not finite: shown as it is, however numbers are shown there."""

    def __format__(self, how: str) -> str:
        return str(self)


def _unknown(key: str, values: dict[str, str | int | float]) -> str:
    return f"{key} ({', '.join(map(str, values.values()))})" if values else key
