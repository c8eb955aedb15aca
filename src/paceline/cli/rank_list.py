"""Parse lists of ranks such as 0,8-15."""

from __future__ import annotations

from paceline.core.errors import UsageError

MOST = 1 << 20


def ranks_of(text: str) -> list[int]:
    """
    >>> ranks_of("0,8-11")
    [0, 8, 9, 10, 11]
    """
    ranks: set[int] = set()
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or int(high or low) >= MOST:
            raise UsageError(f"{text!r} is not a list of ranks", hint="example: 0,8-15")
        ranks.update(range(int(low), int(high or low) + 1))
    return sorted(ranks)
