"""One card: who it is, what is known of it, and what the diagnosis says of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import BaseModel
from starlette.requests import Request

from paceline.advice.present import title
from paceline.web.api.runs import LanguageQuery
from paceline.web.flops import COUNTED
from paceline.web.opened import OpenRun
from paceline.web.service import PROBLEMS, NotFoundError, Opened, ask
from paceline.web.snapshot import Snapshot

router = APIRouter(tags=["cards"])


class CardFinding(BaseModel):
    number: int
    id: str
    severity: str
    title: str
    gain_percent: float


class Group(BaseModel):
    group: str
    kind: str | None
    members: int
    ranks: list[int]
    """The first 64."""


class Card(BaseModel):
    rank: int
    host: str | None
    device: int | None
    stage: int | None
    format: str | None
    path: str | None
    note: str | None
    groups: list[Group]
    findings: list[CardFinding]
    has: dict[str, int]
    """Rows of each table there are for this rank; flops_counted: those of flops that we worked out."""


_COUNTED = ("steps", "operator_times", "collectives", "memory", "flops", "input_pipeline", "input_steps", "host_calls",
            "counters")  # fmt: skip


@router.get("/runs/{run_id}/cards/{rank}", responses=PROBLEMS)
async def card(
    request: Request,
    opened: Opened,
    rank: Annotated[int, PathParameter(ge=0, le=2**31, description="Global rank.")],
    lang: LanguageQuery = "en",
) -> Card:
    """Who a rank is, its groups, the findings that name it, and what was recorded of it."""
    found = await ask(request, opened, lambda snapshot: _card(snapshot, rank))
    return found.model_copy(update={"findings": _findings(opened, rank, lang)})


def _card(snapshot: Snapshot, rank: int) -> Card:
    rows = snapshot.cursor.execute(
        "SELECT rank, host, device, stage, format, path, note FROM ranks WHERE rank = ?", [rank]
    ).fetchall()
    if not rows:
        raise NotFoundError(f"this run has no rank {rank}")
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
        **dict(zip(names, rows[0], strict=True)), has=has, findings=[],
        groups=[Group(group=group, kind=kind, members=members, ranks=ranks) for group, kind, members, ranks in groups],
    )  # fmt: skip


def _findings(opened: OpenRun, rank: int, language: str) -> list[CardFinding]:
    if opened.diagnosis is None:
        return []
    return [
        CardFinding(
            number=number, id=finding.id, severity=finding.severity, title=title(finding, language),
            gain_percent=round(finding.gain.percent, 2),
        )
        for number, finding in enumerate(opened.diagnosis.findings, 1)
        if rank in finding.subject.ranks or any(rank in (link.src, link.dst) for link in finding.subject.links)
    ]  # fmt: skip
