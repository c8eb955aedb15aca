"""What-if: the step time with some faults fixed, and which ranks decide it then."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request

from paceline.diagnosis.finding import Finding
from paceline.diagnosis.what_if import apply_fix, possible_fixes
from paceline.replay.critical_path import TRANSFER, WAIT, WORK, CriticalPath, critical_path
from paceline.web.api.runs import LanguageQuery
from paceline.web.run_cache import CachedRun
from paceline.web.service import PROBLEMS, Answer, RunDependency, get_service

router = APIRouter(tags=["what-if"])

MOST_FIXES = 16
MOST_RANKS = 8


class Fix(Answer):
    """`fix` is what `paceline what-if --fix` takes; `finding` is the number of the finding it fixes."""

    fix: str
    finding: int | None = None
    title: str | None = None


class Fixes(Answer):
    fixes: list[Fix]


class CriticalRank(Answer):
    """A rank's share of the critical path, ms per step."""

    rank: int
    work: float
    transfer: float


class PathTimes(Answer):
    """Time on the critical path, ms per step."""

    work: float
    transfer: float
    wait: float


class WhatIfAnswer(Answer):
    """The step now and with the fixes, ms."""

    fixes: list[str]
    step_ms_now: float
    step_ms_fixed: float
    percent: float
    speedup: float | None
    """step_ms_now / step_ms_fixed."""
    path: PathTimes
    holders: list[CriticalRank]
    """Ranks that decide the new step time, the largest share first."""


@router.get("/runs/{run_id}/fixes", responses=PROBLEMS)
async def fixes(request: Request, run: RunDependency, lang: LanguageQuery = "en") -> Fixes:
    """Fixes for the findings, then recipe changes that can do something in this run."""
    run.report(lang)
    found: dict[str, Fix] = {}
    for number, finding in enumerate(run.findings(lang), 1):
        for fix in suggested(finding):
            found.setdefault(fix, Fix(fix=fix, finding=number, title=finding.title))
    possible = await get_service(request).limiter.run(
        request, lambda: run.cached_result(("possible-fixes",), lambda: possible_fixes(run.context))
    )
    for fix in possible:
        found.setdefault(fix, Fix(fix=fix))
    return Fixes(fixes=list(found.values()))


@router.get("/runs/{run_id}/what-if", responses=PROBLEMS)
async def what_if(
    request: Request,
    run: RunDependency,
    fix: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None,
        Query(
            max_length=MOST_FIXES, description="rank:5, host:NAME, link:3-4, stages, overlap or input; may be repeated."
        ),
    ] = None,
) -> WhatIfAnswer:
    """Replay the run with these faults fixed."""
    wanted = tuple(sorted(set(fix or [])))
    key = ("fix", *wanted)
    return await get_service(request).limiter.run(
        request, lambda: run.cached_result(key, lambda: _replay_fixes(run, wanted))
    )


def suggested(finding: Finding) -> list[str]:
    """Fixes of a finding, as apply_fix takes them."""
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


def _replay_fixes(run: CachedRun, wanted: tuple[str, ...]) -> WhatIfAnswer:
    context = run.context
    costs = context.replay.costs
    for text in wanted:
        costs = apply_fix(context, costs, text)
    gain = context.gain(costs)
    path = critical_path(context.replay, costs if wanted else None)
    steps = max(1, len(context.timeline.steps))
    return WhatIfAnswer(
        fixes=list(wanted),
        step_ms_now=round(gain.step_ms_now, 4),
        step_ms_fixed=round(gain.step_ms_fixed, 4),
        percent=round(gain.percent, 2),
        speedup=gain.speedup,
        path=PathTimes(**{kind: round(path.time_of(kind) / steps / 1e6, 4) for kind in (WORK, TRANSFER, WAIT)}),
        holders=_critical_ranks(path, steps),
    )


def _critical_ranks(path: CriticalPath, steps: int) -> list[CriticalRank]:
    work: dict[int, float] = {}
    transfer: dict[int, float] = {}
    for segment in path.segments:
        times = transfer if segment.kind == TRANSFER else work
        if segment.kind != WAIT:
            times[segment.rank] = times.get(segment.rank, 0.0) + segment.duration / steps / 1e6
    ranks = sorted(set(work) | set(transfer), key=lambda rank: -(work.get(rank, 0.0) + transfer.get(rank, 0.0)))
    return [
        CriticalRank(rank=rank, work=round(work.get(rank, 0.0), 4), transfer=round(transfer.get(rank, 0.0), 4))
        for rank in ranks[:MOST_RANKS]
    ]
