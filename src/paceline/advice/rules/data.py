"""What is missing from the recording, so that nobody reads more into it than is there."""

from __future__ import annotations

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject


def data_incomplete(case: Case) -> list[Finding]:
    warnings = case.run.warnings
    missing = [row[0] for row in case.rows("SELECT rank FROM ranks WHERE format IS NULL ORDER BY rank")]
    harmed = sorted({w.rank for w in warnings if w.rank is not None and _loses_data(w.message)} | set(missing))
    ragged = any("ragged" in warning.message for warning in warnings)
    if not harmed and not ragged:
        return []
    if ragged:
        harmed = sorted({*harmed, *_shorter(case)})
    total = int(case.rows("SELECT count(*) FROM ranks")[0][0])
    return [
        Finding(
            id="data-incomplete",
            subject=Subject(ranks=tuple(harmed)),
            gain=case.no_gain(),
            confidence=1.0,
            amount=str(len(harmed)),
            detail=str(warnings[0]) if warnings else "",
            evidence=(Evidence("ranks with missing data", float(len(harmed)), float(total), "ranks"),),
            at_least="medium" if missing or harmed else "low",
        )
    ]


def _shorter(case: Case) -> list[int]:
    """Ranks with fewer steps than others; of all steps, not only of those that all ranks share."""
    rows = case.rows("SELECT rank, count(*) FROM steps WHERE step IS NOT NULL GROUP BY rank ORDER BY rank")
    most = max((count for _, count in rows), default=0)
    return [rank for rank, count in rows if count < most]


def _loses_data(message: str) -> bool:
    return any(sign in message for sign in ("cut off", "empty", "cannot be", "not what its name", "limit", "UTF-8"))
