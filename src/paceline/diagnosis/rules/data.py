"""Data that is missing from the recording or incomplete."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.message import Sentence
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.run.read_warning import ReadWarning

_TELL_OF_GAPS = ("no trace was found", "no recording of them", "ragged")


@rule(priority=140)
def data_incomplete(context: DiagnosisContext) -> list[RuleFinding]:
    warnings = context.run.warnings
    missing = [row[0] for row in context.rows("SELECT rank FROM ranks WHERE format IS NULL ORDER BY rank")]
    incomplete = sorted({w.rank for w in warnings if w.rank is not None and _loses_data(w.message)} | set(missing))
    ragged = any("ragged" in warning.message for warning in warnings)
    if not incomplete and not ragged:
        return []
    if ragged:
        incomplete = sorted({*incomplete, *_ranks_with_fewer_steps(context)})
    total = int(context.rows("SELECT count(*) FROM ranks")[0][0])
    return [
        RuleFinding(
            id="data-incomplete",
            subject=Subject(ranks=tuple(incomplete)),
            gain=context.no_gain(),
            confidence=1.0,
            amount=Quantity(len(incomplete)),
            detail=_reason(warnings),
            evidence=(MeasuredValue("ranks_with_missing_data", float(len(incomplete)), float(total), "ranks"),),
            min_severity="medium" if missing or incomplete else "low",
        )
    ]


def _ranks_with_fewer_steps(context: DiagnosisContext) -> list[int]:
    """Ranks with fewer steps than others; of all steps, not only of those that all ranks share."""
    rows = context.rows("SELECT rank, count(*) FROM steps WHERE step IS NOT NULL GROUP BY rank ORDER BY rank")
    most = max((count for _, count in rows), default=0)
    return [rank for rank, count in rows if count < most]


def _reason(warnings: Sequence[ReadWarning]) -> Sentence:
    """The warning that tells what is missing: that a rank's number is assumed, for example, does not."""
    telling = (w for w in warnings if _loses_data(w.message) or any(sign in w.message for sign in _TELL_OF_GAPS))
    found = next(telling, warnings[0] if warnings else None)
    return found.sentence if found else ""


def _loses_data(message: str) -> bool:
    return any(sign in message for sign in ("cut off", "empty", "cannot be", "not what its name", "limit", "UTF-8"))
