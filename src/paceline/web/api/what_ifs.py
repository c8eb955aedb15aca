"""What if: the step with some faults mended, and who holds it up then."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request

from paceline.advice.finding import Finding
from paceline.advice.present import title
from paceline.advice.what_if import apply_fix
from paceline.analysis.critical_path import TRANSFER, WAIT, WORK, CriticalPath, critical_path
from paceline.web.api.runs import LanguageQuery
from paceline.web.opened import OpenRun
from paceline.web.service import PROBLEMS, Opened, the_service

router = APIRouter(tags=["what-if"])

MOST_FIXES = 16
MOST_RANKS = 8


class Fix(BaseModel):
    """`fix` is what `paceline what-if --fix` takes; `finding` is the number of the finding it mends."""

    fix: str
    finding: int | None = None
    title: str | None = None


class Fixes(BaseModel):
    fixes: list[Fix]


class Holder(BaseModel):
    """A rank's share of the critical path, ms a step."""

    rank: int
    work: float
    transfer: float


class Mended(BaseModel):
    fixes: list[str]
    step_ms_now: float
    step_ms_fixed: float
    percent: float
    path: dict[str, float]
    """ms a step of work, transfer and wait on the critical path."""
    holders: list[Holder]
    """Ranks that decide the new step time, the largest share first."""


@router.get("/runs/{run_id}/fixes", responses=PROBLEMS)
async def fixes(opened: Opened, lang: LanguageQuery = "en") -> Fixes:
    """Fixes the findings suggest, then those that any run can be asked for."""
    opened.report(lang)
    found: dict[str, Fix] = {}
    for number, finding in enumerate(opened.diagnosis.findings if opened.diagnosis else (), 1):
        for fix in suggested(finding):
            found.setdefault(fix, Fix(fix=fix, finding=number, title=title(finding, lang)))
    for fix in ("stages", "overlap", "input"):
        found.setdefault(fix, Fix(fix=fix))
    return Fixes(fixes=list(found.values()))


@router.get("/runs/{run_id}/what-if", responses=PROBLEMS)
async def what_if(
    request: Request,
    opened: Opened,
    fix: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None,
        Query(
            max_length=MOST_FIXES, description="rank:5, host:NAME, link:3-4, stages, overlap or input; may be repeated."
        ),
    ] = None,
) -> Mended:
    """Replay the run with these faults mended."""
    wanted = tuple(sorted(set(fix or [])))
    key = ("fix", *wanted)
    return await the_service(request).work.do(request, lambda: opened.remembered(key, lambda: _mend(opened, wanted)))


def suggested(finding: Finding) -> list[str]:
    """What would mend a finding, in the words of apply_fix."""
    subject = finding.subject
    if subject.links:
        return [f"link:{link.src}-{link.dst}" for link in subject.links[:MOST_FIXES]]
    if finding.id == "slow-host":
        return [f"host:{host}" for host in subject.hosts]
    if finding.id == "stage-imbalance":
        return ["stages"]
    if finding.id == "input-bound":
        return ["input"]
    if finding.id == "comm-exposed":
        return ["overlap"]
    if finding.id in ("memory-pressure", "memory-imbalance", "data-incomplete", "pipeline-bubble"):
        return []
    return [f"rank:{rank}" for rank in subject.ranks[:MOST_FIXES]]


def _mend(opened: OpenRun, wanted: tuple[str, ...]) -> Mended:
    case = opened.case
    costs = case.replay.costs
    for text in wanted:
        costs = apply_fix(case, costs, text)
    gain = case.gain(costs)
    path = critical_path(case.replay, costs if wanted else None)
    steps = max(1, len(case.line.steps))
    return Mended(
        fixes=list(wanted), step_ms_now=round(gain.step_ms_now, 4), step_ms_fixed=round(gain.step_ms_fixed, 4),
        percent=round(gain.percent, 2),
        path={kind: round(path.time_of(kind) / steps / 1e6, 4) for kind in (WORK, TRANSFER, WAIT)},
        holders=_holders(path, steps),
    )  # fmt: skip


def _holders(path: CriticalPath, steps: int) -> list[Holder]:
    work: dict[int, float] = {}
    transfer: dict[int, float] = {}
    for segment in path.segments:
        times = transfer if segment.kind == TRANSFER else work
        if segment.kind != WAIT:
            times[segment.rank] = times.get(segment.rank, 0.0) + segment.duration / steps / 1e6
    ranks = sorted(set(work) | set(transfer), key=lambda rank: -(work.get(rank, 0.0) + transfer.get(rank, 0.0)))
    return [
        Holder(rank=rank, work=round(work.get(rank, 0.0), 4), transfer=round(transfer.get(rank, 0.0), 4))
        for rank in ranks[:MOST_RANKS]
    ]
