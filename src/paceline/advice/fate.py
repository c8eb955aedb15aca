"""What became of the findings of an earlier run: gone, still there, or no longer visible; and which are new."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.advice.finding import Diagnosis, Finding, Subject
from paceline.run.run import Run

GONE, STILL, NEW, UNSEEN = "gone", "still", "new", "unseen"


@dataclass(frozen=True)
class Fate:
    """A finding and what became of it; `unseen` = the later run records nothing that could show it."""

    status: str
    before: Finding | None
    after: Finding | None

    @property
    def finding(self) -> Finding:
        found = self.before or self.after
        assert found is not None
        return found


def fates(before: Diagnosis, after: Diagnosis, *, blind: frozenset[str] = frozenset()) -> tuple[Fate, ...]:
    """Match findings by id and overlapping subject; `blind` names subjects the later run cannot show."""
    left = list(after.findings)
    told = []
    for old in before.findings:
        match = next((new for new in left if new.id == old.id and overlap(old.subject, new.subject)), None)
        if match is not None:
            left.remove(match)
            told.append(Fate(STILL, old, match))
        else:
            told.append(Fate(UNSEEN if _needs(old) & blind else GONE, old, None))
    return (*told, *(Fate(NEW, None, new) for new in left))


def overlap(one: Subject, other: Subject) -> bool:
    """Whether two subjects share somebody; one that names nobody means everybody."""
    mine, theirs = _parts(one), _parts(other)
    return not mine or not theirs or bool(mine & theirs)


def blind_spots(run: Run) -> frozenset[str]:
    """Kinds of subjects a run has no rows for."""
    queries = {"links": "SELECT 1 FROM links LIMIT 1", "operators": "SELECT 1 FROM kernels LIMIT 1"}
    return frozenset(kind for kind, query in queries.items() if not run.sql(query).fetchall())


def _parts(subject: Subject) -> set[tuple[str, object]]:
    """Ranks count only where nothing narrower is named: a link names its ranks too."""
    narrow: set[tuple[str, object]] = {("link", (link.src, link.dst)) for link in subject.links}
    narrow |= {("operator", name) for name in subject.operators}
    narrow |= {("stage", stage) for stage in subject.stages}
    wide: set[tuple[str, object]] = {("rank", rank) for rank in subject.ranks}
    return narrow or wide or {("host", host) for host in subject.hosts}


def _needs(finding: Finding) -> set[str]:
    subject = finding.subject
    return ({"links"} if subject.links else set()) | ({"operators"} if subject.operators else set())
