"""Two runs side by side."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from paceline.advice.fate import blind_spots, fates
from paceline.advice.present import title
from paceline.analysis.compare import Change, Comparison, compare
from paceline.errors import UsageError
from paceline.web.api.runs import LanguageQuery
from paceline.web.opened import OpenRun
from paceline.web.service import PROBLEMS, ServiceNow, json_bytes

router = APIRouter(tags=["compare"])

MOST_ROWS = 300
_TABLES = ("phases", "ranks", "operators", "transports", "links")
RunQuery = Annotated[str, Query(max_length=64, description="Id of a run, from /api/v1/runs.")]


class Changed(BaseModel):
    """`verdict` is faster, slower or same; more or less where neither is good or bad."""

    name: str
    unit: str
    before: float
    after: float
    noise: float
    verdict: str
    percent: float | None


class Fated(BaseModel):
    """`status` is gone, still, new or unseen (the later run records nothing that could show it)."""

    status: str
    id: str
    title: str
    gain_percent_before: float | None
    gain_percent_after: float | None


class Compared(BaseModel):
    same_ranks: bool
    step: Changed
    phases: list[Changed]
    ranks: list[Changed]
    operators: list[Changed]
    transports: list[Changed]
    links: list[Changed]
    counts: dict[str, int]
    """Rows of each table there are; the largest changes are sent."""
    findings: list[Fated]
    before: dict[str, Any]
    after: dict[str, Any]


@router.get("/compare", responses=PROBLEMS | {200: {"model": Compared}}, response_class=Response)
async def compare_runs(
    request: Request, service: ServiceNow, before: RunQuery, after: RunQuery, lang: LanguageQuery = "en"
) -> Response:
    """What became faster or slower beyond noise, and what became of the findings; both runs must be ready."""
    runs = await asyncio.to_thread(lambda: (service.opened(before), service.opened(after)))
    for run in runs:
        run.report(lang)
        if run.diagnosis is None:
            raise UsageError(f"{run.found.name} cannot be compared: {run.undiagnosed}")
    return json_bytes(await service.work.do(request, lambda: _compared(*runs, lang)))


def _compared(before: OpenRun, after: OpenRun, language: str) -> dict[str, Any]:
    old = before.exclusive(lambda: before.measured)
    new = after.exclusive(lambda: after.measured)
    result = compare(old, new)
    assert before.diagnosis is not None and after.diagnosis is not None
    blind = after.exclusive(lambda: blind_spots(after.case.run))
    told = fates(before.diagnosis, after.diagnosis, blind=blind)
    return {
        "same_ranks": result.same_ranks,
        "step": _change(result.step),
        **{name: [_change(change) for change in _rows(result, name)[:MOST_ROWS]] for name in _TABLES},
        "counts": {name: len(_rows(result, name)) for name in _TABLES},
        "findings": [
            {
                "status": fate.status, "id": fate.finding.id, "title": title(fate.finding, language),
                "gain_percent_before": round(fate.before.gain.percent, 2) if fate.before else None,
                "gain_percent_after": round(fate.after.gain.percent, 2) if fate.after else None,
            }
            for fate in told
        ],
        "before": before.diagnosis.run | {"source": before.found.name, "id": before.found.id},
        "after": after.diagnosis.run | {"source": after.found.name, "id": after.found.id},
    }  # fmt: skip


def _rows(result: Comparison, name: str) -> tuple[Change, ...]:
    rows: tuple[Change, ...] = getattr(result, name)
    return rows


def _change(change: Change) -> dict[str, Any]:
    return asdict(change) | {"percent": change.percent}
