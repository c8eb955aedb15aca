"""Endpoint of one card: its place in the cluster, its groups, its findings, and what was recorded of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.requests import Request

from paceline.core.i18n import Language
from paceline.diagnosis.finding import Severity
from paceline.metrics.flops import COUNTED
from paceline.web.api.runs import LanguageQuery
from paceline.web.problems import NotFoundError
from paceline.web.run_cache import CachedRun
from paceline.web.service import PROBLEMS, Answer, RunDependency, query_run
from paceline.web.snapshot import Snapshot

router = APIRouter(tags=["cards"])


class CardFinding(Answer):
    number: int
    id: str
    severity: Severity
    title: str
    gain_percent: float


class CardGroup(Answer):
    group: str
    kind: str | None
    members: int
    ranks: list[int]
    """The first 64."""


class Card(Answer):
    rank: int
    host: str | None
    device: int | None
    stage: int | None
    format: str | None
    path: str | None
    note: str | None
    groups: list[CardGroup]
    findings: list[CardFinding]
    has: dict[str, int]
    """Rows of each table there are for this rank; flops_counted: those of flops that we worked out."""


_COUNTED = (
    "steps",
    "operator_times",
    "collectives",
    "memory",
    "rank_memory",
    "flops",
    "input_pipeline",
    "input_steps",
    "host_calls",
    "counters",
)


@router.get("/runs/{run_id}/cards/{rank}", responses=PROBLEMS)
async def card(
    request: Request,
    run: RunDependency,
    rank: Annotated[int, PathParameter(ge=0, le=2**31, description="Global rank.")],
    lang: LanguageQuery = "en",
) -> Card:
    """A rank with its groups, the findings that name it, and what was recorded of it."""
    found = await query_run(request, run, lambda snapshot: _card(snapshot, rank))
    return found.model_copy(update={"findings": _findings(run, rank, lang)})


def _card(snapshot: Snapshot, rank: int) -> Card:
    rows = snapshot.cursor.execute(
        "SELECT rank, host, device, stage, format, path, note FROM ranks WHERE rank = ?", [rank]
    ).fetchall()
    if not rows:
        raise NotFoundError("no_rank", rank=rank)
    counted = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name} WHERE rank = $rank" for name in _COUNTED)
    counted += f" UNION ALL SELECT 'flops_counted', count(*) FROM flops WHERE rank = $rank AND basis = '{COUNTED}'"
    has = dict(snapshot.cursor.execute(counted, {"rank": rank}).fetchall())
    groups = snapshot.cursor.execute(
        """
        SELECT "group", any_value(kind), count(*), list(rank ORDER BY index, rank)[:64] FROM groups
        WHERE "group" IN (SELECT "group" FROM groups WHERE rank = ?) GROUP BY "group" ORDER BY count(*), "group" LIMIT 100
        """,
        [rank],
    ).fetchall()
    names = ("rank", "host", "device", "stage", "format", "path", "note")
    return Card(
        **dict(zip(names, rows[0], strict=True)),
        has=has,
        findings=[],
        groups=[
            CardGroup(group=group, kind=kind, members=members, ranks=ranks) for group, kind, members, ranks in groups
        ],
    )


def _findings(run: CachedRun, rank: int, language: Language) -> list[CardFinding]:
    return [
        CardFinding(
            number=number,
            id=finding.id,
            severity=finding.severity,
            title=finding.title,
            gain_percent=finding.gain.percent,
        )
        for number, finding in enumerate(run.findings(language), 1)
        if rank in finding.subject.ranks or any(rank in (link.src, link.dst) for link in finding.subject.links)
    ]
