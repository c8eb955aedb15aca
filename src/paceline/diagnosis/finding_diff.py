"""Findings of two runs side by side: which are gone, which are still there, which are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.diagnosis.finding import Diagnosis, Finding, Subject
from paceline.run.run import Run

ChangeStatus = Literal["gone", "still", "new", "unseen"]
"""`unseen`: not found again, but the later run records nothing that could show it."""


@dataclass(frozen=True)
class FindingChange:
    """A finding of the earlier run, the later run, or both."""

    status: ChangeStatus
    before: Finding | None
    after: Finding | None

    @property
    def finding(self) -> Finding:
        found = self.before or self.after
        assert found is not None
        return found


def compare_findings(
    before: Diagnosis, after: Diagnosis, *, unrecorded: frozenset[str] = frozenset()
) -> tuple[FindingChange, ...]:
    """Match findings by id and overlapping subject; `unrecorded` names kinds of subjects the later run cannot show."""
    left = list(after.findings)
    changes = []
    for old in before.findings:
        match = next((new for new in left if new.id == old.id and subjects_overlap(old.subject, new.subject)), None)
        if match is not None:
            left.remove(match)
            changes.append(FindingChange("still", old, match))
        else:
            changes.append(FindingChange("unseen" if _needed_kinds(old) & unrecorded else "gone", old, None))
    return (*changes, *(FindingChange("new", None, new) for new in left))


def subjects_overlap(one: Subject, other: Subject) -> bool:
    """Whether two subjects share a component; one that names none means the whole run."""
    mine, theirs = _components(one), _components(other)
    return not mine or not theirs or bool(mine & theirs)


def unrecorded_kinds(run: Run) -> frozenset[str]:
    """Kinds of subjects a run has no rows for."""
    queries = {"links": "SELECT 1 FROM links LIMIT 1", "operators": "SELECT 1 FROM kernels LIMIT 1"}
    return frozenset(kind for kind, query in queries.items() if not run.sql(query).fetchall())


def _components(subject: Subject) -> set[tuple[str, object]]:
    """Ranks count only where nothing narrower is named: a link names its ranks too."""
    narrow: set[tuple[str, object]] = {("link", (link.src, link.dst)) for link in subject.links}
    narrow |= {("operator", name) for name in subject.operators}
    narrow |= {("stage", stage) for stage in subject.stages}
    wide: set[tuple[str, object]] = {("rank", rank) for rank in subject.ranks}
    return narrow or wide or {("host", host) for host in subject.hosts}


def _needed_kinds(finding: Finding) -> set[str]:
    subject = finding.subject
    return ({"links"} if subject.links else set()) | ({"operators"} if subject.operators else set())
