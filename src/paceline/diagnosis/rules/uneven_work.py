"""Work that is dealt unevenly among ranks that do the same: tokens of experts, rows of batches. No card is slow."""

from __future__ import annotations

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.metrics.uneven_work import ALL_TO_ALL, UnevenWork

MOST_NAMED = 0.25
"""Share of the peers that are named: those with most rows."""


@rule(priority=15)
def uneven_tokens(context: DiagnosisContext) -> list[RuleFinding]:
    found = [uneven for uneven in context.uneven_work if uneven is not None]
    return [_finding(context, uneven) for uneven in found]


def _finding(context: DiagnosisContext, uneven: UnevenWork) -> RuleFinding:
    row_of = {info.rank: row for row, info in enumerate(context.ranks)}
    rank_rows = tuple(row_of[rank] for rank in uneven.ranks)
    gain = context.even_gain(rank_rows)
    mean = sum(uneven.rows.values()) / len(uneven.rows)
    hot = sorted(uneven.rows, key=lambda rank: -uneven.rows[rank])[: max(1, int(MOST_NAMED * len(uneven.rows)))]
    hot = [rank for rank in hot if uneven.rows[rank] > 1.05 * mean]
    most = max(uneven.rows.values())
    return RuleFinding(
        id="expert-imbalance" if _has_experts(context) else "load-imbalance",
        subject=Subject(ranks=tuple(sorted(hot)), hosts=context.hosts_of([row_of[rank] for rank in hot])),
        gain=gain,
        confidence=round(min(0.99, uneven.correlation), 2),
        amount=Quantity(100 * (uneven.peak - 1), "%"),
        evidence=_evidence(uneven, most, mean),
    )


def _evidence(uneven: UnevenWork, most: float, mean: float) -> tuple[MeasuredValue, ...]:
    peak = MeasuredValue("uneven_peak", round(100 * (uneven.peak - 1), 1), unit="%")
    if not uneven.types:
        return (peak, MeasuredValue("uneven_payload", round(most / 1e6, 3), round(mean / 1e6, 3), "MB"))
    named = ", ".join(uneven.types[:3])
    return (
        peak,
        MeasuredValue("rows_per_step", round(most), round(mean)),
        MeasuredValue("uneven_operators", len(uneven.types), values={"operators": named}),
    )


def _has_experts(context: DiagnosisContext) -> bool:
    return bool(context.timeline.events.is_op(ALL_TO_ALL).any())
