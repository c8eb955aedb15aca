"""Parse lists of ranks such as 0-7, 12: one notation for options of commands and filters of pages."""

from __future__ import annotations

from paceline.core.errors import UsageError

MOST = 1 << 20


def ranks_of(text: str) -> list[int]:
    """
    >>> ranks_of("0, 8-11")
    [0, 8, 9, 10, 11]
    """
    ranks: set[int] = set()
    for piece in text.replace("，", ",").replace("–", "-").split(","):
        low, dash, high = (part.strip() for part in piece.partition("-"))
        if not _is_rank(low) or (dash and not (_is_rank(high) and int(low) <= int(high))):
            raise UsageError(f"{text!r} is not a list of ranks", hint="example: 0-7, 12")
        ranks.update(range(int(low), int(high or low) + 1))
    return sorted(ranks)


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 7 and int(text) < MOST
