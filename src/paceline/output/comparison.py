"""Two runs side by side as public JSON, schema "paceline.comparison/1"."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.diagnosis.finding import RunFacts, Subject
from paceline.diagnosis.finding_diff import ChangeStatus, FindingChange
from paceline.metrics.compare import Change, Comparison, Verdict

SCHEMA = "paceline.comparison/1"


class ChangedValue(msgspec.Struct, frozen=True):
    """One quantity in both runs. `same`: the change is within noise; `more`, `less`: it is neither good nor bad."""

    name: str
    unit: str
    before: float
    after: float
    noise: float
    verdict: Verdict
    percent: float | None


class ChangedFinding(msgspec.Struct, frozen=True):
    """What became of a finding; `unseen`: the later run records nothing that could show it."""

    status: ChangeStatus
    id: str
    title: str
    subject: Subject
    gain_percent_before: float | None
    gain_percent_after: float | None


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """What became faster or slower beyond noise, largest change first, and what became of the findings."""

    before: RunFacts
    after: RunFacts
    same_ranks: bool
    """False: only the step and its phases are compared."""
    step: ChangedValue
    phases: tuple[ChangedValue, ...]
    ranks: tuple[ChangedValue, ...]
    operators: tuple[ChangedValue, ...]
    transports: tuple[ChangedValue, ...]
    links: tuple[ChangedValue, ...]
    findings: tuple[ChangedFinding, ...]


def comparison_document(
    result: Comparison, findings: Sequence[FindingChange], *, before: RunFacts, after: RunFacts
) -> ComparisonDocument:
    return ComparisonDocument(
        before=before,
        after=after,
        same_ranks=result.same_ranks,
        step=changed_value(result.step),
        phases=tuple(map(changed_value, result.phases)),
        ranks=tuple(map(changed_value, result.ranks)),
        operators=tuple(map(changed_value, result.operators)),
        transports=tuple(map(changed_value, result.transports)),
        links=tuple(map(changed_value, result.links)),
        findings=tuple(map(changed_finding, findings)),
    )


def changed_value(change: Change) -> ChangedValue:
    return ChangedValue(
        name=change.name,
        unit=change.unit,
        before=round(change.before, 6),
        after=round(change.after, 6),
        noise=round(change.noise, 6),
        verdict=change.verdict,
        percent=None if change.percent is None else round(change.percent, 2),
    )


def changed_finding(change: FindingChange) -> ChangedFinding:
    return ChangedFinding(
        status=change.status,
        id=change.finding.id,
        title=change.finding.title,
        subject=change.finding.subject,
        gain_percent_before=change.before.gain.percent if change.before else None,
        gain_percent_after=change.after.gain.percent if change.after else None,
    )
