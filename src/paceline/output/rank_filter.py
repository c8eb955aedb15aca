"""Ranks that a user names, e.g. 0,5,8-15, as a condition in SQL."""

from __future__ import annotations

from paceline.core.errors import UsageError
from paceline.run.run import Run


def rank_condition(run: Run, ranks: str | None) -> str:
    """SQL for a list like 0,5,8-15; everything when there is none, an error when it names no rank of the run."""
    if ranks is None:
        return "true"
    pieces = []
    for piece in ranks.split(","):
        low, _, high = piece.strip().partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()):
            raise UsageError(f"--ranks {ranks}: {piece!r} is neither a rank nor a range", hint="example: 0,5,8-15")
        pieces.append(f"rank BETWEEN {int(low)} AND {int(high or low)}")
    condition = f"({' OR '.join(pieces)})"
    if not run.table("ranks").filter(condition).limit(1).fetchall():
        raise UsageError(f"--ranks {ranks}: none of them is in this run", hint=f"paceline show {run.source} ranks")
    return condition


def table_condition(condition: str, columns: list[str]) -> str:
    """The condition for a table with these columns; links belong to both their ends."""
    if "rank" in columns:
        return condition
    if "src" in columns:
        return " OR ".join(condition.replace("rank ", f"{end} ") for end in ("src", "dst"))
    return "true"
