"""Runs: the list, one run's state, opening it, and the document of its overview."""

from __future__ import annotations

import gzip
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from paceline.web.catalogue import FoundRun
from paceline.web.opened import FOUND, READY, OpenRun, State
from paceline.web.service import JSON_OBJECT, PROBLEMS, GoneError, Opened, RunId, Service, ServiceNow

router = APIRouter(tags=["runs"])

Language = Literal["en", "zh"]
Part = Literal["arrivals", "operators"]
LanguageQuery = Annotated[Language, Query(description="Language of texts.")]


class Progress(BaseModel):
    """found, queued, reading, examining, ready or failed; done and total are bytes while reading."""

    phase: str
    done: int = 0
    total: int = 0
    message: str | None = None
    hint: str | None = None


class RunInfo(BaseModel):
    id: str
    name: str
    formats: list[str]
    ranks: int
    files: int
    bytes: int
    changed: float
    """Newest file, seconds since 1970."""
    state: Progress
    stale: bool = False
    """The files changed since they were read."""
    findings: int | None = None
    worst: str | None = None
    """Title of the first finding."""
    severity: str | None = None
    gain_percent: float | None = None
    step_ms: float | None = None


class RunList(BaseModel):
    base: str
    scanning: bool
    total: int
    runs: list[RunInfo]
    warnings: list[str]


@router.get("/runs", responses={422: PROBLEMS[422]})
def list_runs(
    service: ServiceNow,
    q: Annotated[str, Query(max_length=200, description="Only runs whose path or format contains this.")] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    lang: LanguageQuery = "en",
) -> RunList:
    """Runs below the base directory, newest first; nothing is read for this."""
    wanted = q.lower()
    found = [
        run for run in service.catalogue.runs(wait=1.5)
        if wanted in run.name.lower() or any(wanted in name for name in run.formats)
    ]  # fmt: skip
    shown = [_info(run, service.runs.get(run.id), lang) for run in found[offset : offset + limit]]
    return RunList(
        base=service.catalogue.base.name or "/", scanning=service.catalogue.scanning, total=len(found), runs=shown,
        warnings=list(service.catalogue.warnings[:20]),
    )  # fmt: skip


@router.get("/runs/{run_id}", responses={code: PROBLEMS[code] for code in (404, 410, 422)})
def get_run(run_id: RunId, service: ServiceNow, lang: LanguageQuery = "en") -> RunInfo:
    """One run and how far it is; also whether its files changed since it was read."""
    found = service.found(run_id)
    opened = service.runs.get(run_id)
    info = _info(opened.found if opened else found, opened, lang)
    if opened is not None and opened.state.phase == READY:
        now = service.now(opened.found)
        if now is None:
            raise GoneError(f"the run {found.name} is no longer there", hint="its files were moved or deleted")
        info.stale = now.fingerprint != opened.found.fingerprint
    return info


@router.post("/runs/{run_id}/open", status_code=202, responses={code: PROBLEMS[code] for code in (404, 410, 422)})
def open_run(
    run_id: RunId,
    service: ServiceNow,
    again: Annotated[bool, Query(description="Read it anew, with its files as they are now.")] = False,
    lang: LanguageQuery = "en",
) -> RunInfo:
    """Start reading a run, if nobody has. Its files are only read; what was read is kept in Paceline's cache."""
    found = service.found(run_id)
    if again:
        found = _as_it_is(found, service)
    return _info(found, service.runs.open(found, again=again), lang)


@router.get(
    "/runs/{run_id}/overview",
    responses=PROBLEMS | {200: JSON_OBJECT},
    response_class=Response,
)
async def overview(request: Request, opened: Opened, lang: LanguageQuery = "en") -> Response:
    """The diagnosis and the small tables that all pages share: schema "paceline.report/1"."""
    return _unpacked_for(request, opened.report(lang))


@router.get("/runs/{run_id}/overview/{part}", responses=PROBLEMS | {200: JSON_OBJECT}, response_class=Response)
async def overview_part(request: Request, opened: Opened, part: Part) -> Response:
    """Tables of the same document that one view needs: who came last, communication operators by rank."""
    return _unpacked_for(request, opened.part(part))


def _unpacked_for(request: Request, packed: bytes) -> Response:
    """Compressed as it is kept, unless the client cannot unpack it."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(packed), media_type="application/json")
    headers = {"content-encoding": "gzip", "vary": "Accept-Encoding"}
    return Response(packed, media_type="application/json", headers=headers)


def _as_it_is(found: FoundRun, service: Service) -> FoundRun:
    now = service.now(found)
    if now is None:
        raise GoneError(f"the run {found.name} is no longer there")
    return now


def _info(found: FoundRun, opened: OpenRun | None, language: str) -> RunInfo:
    state = opened.state if opened else State(FOUND)
    info = RunInfo(
        id=found.id, name=found.name, formats=list(found.formats), ranks=found.ranks, files=found.files,
        bytes=found.size, changed=found.changed,
        state=Progress(phase=state.phase, done=state.done, total=state.total, message=state.message, hint=state.hint),
    )  # fmt: skip
    if opened is not None and opened.diagnosis is not None:
        _add_diagnosis(info, opened, language)
    return info


def _add_diagnosis(info: RunInfo, opened: OpenRun, language: str) -> None:
    from paceline.advice.present import title

    assert opened.diagnosis is not None
    findings = opened.diagnosis.findings
    info.findings = len(findings)
    info.ranks = opened.diagnosis.run["ranks"]
    info.step_ms = opened.diagnosis.run["step_ms"]["median"]
    if findings:
        info.worst, info.severity = title(findings[0], language), findings[0].severity
        info.gain_percent = round(findings[0].gain.percent, 2)
