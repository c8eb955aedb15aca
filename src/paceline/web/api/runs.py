"""Endpoints of runs: the list, the state of one run, opening it, and its overview document."""

from __future__ import annotations

import gzip
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from paceline.core.i18n import Language
from paceline.diagnosis.finding import Diagnosis, Severity
from paceline.web.catalogue import FoundRun
from paceline.web.openapi import json_document
from paceline.web.problems import GoneError
from paceline.web.run_cache import FOUND, READY, Phase, ReadState, ReportTables, ServedReport
from paceline.web.service import PROBLEMS, Answer, RunDependency, RunId, Service, ServiceDependency

router = APIRouter(tags=["runs"])

MOST_AT_ONCE = 500
"""Runs that one request may start to read."""

Part = Literal["arrivals", "operators"]
LanguageQuery = Annotated[Language, Query(description="Language of texts.")]


class Progress(Answer):
    """done and total are bytes while reading."""

    phase: Phase
    done: int = 0
    total: int = 0
    message: str | None = None
    hint: str | None = None


class RunInfo(Answer):
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
    severity: Severity | None = None
    gain_percent: float | None = None
    step_ms: float | None = None


class RunList(Answer):
    base: str
    scanning: bool
    total: int
    runs: list[RunInfo]
    warnings: list[str]


class OpenedRuns(Answer):
    opened: int


@router.get("/runs", responses={422: PROBLEMS[422]})
def list_runs(
    service: ServiceDependency,
    q: Annotated[str, Query(max_length=200, description="Only runs whose path or format contains this.")] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    lang: LanguageQuery = "en",
) -> RunList:
    """Runs below the base directory, newest first; nothing is read for this."""
    found = _matching(service, q)
    shown = [_info(run, service, lang) for run in found[offset : offset + limit]]
    return RunList(
        base=service.catalogue.base.name or "/",
        scanning=service.catalogue.scanning,
        total=len(found),
        runs=shown,
        warnings=list(service.catalogue.warnings[:20]),
    )


@router.post("/runs/open", status_code=202, responses={422: PROBLEMS[422]})
def open_runs(
    service: ServiceDependency,
    q: Annotated[str, Query(max_length=200, description="Only runs whose path or format contains this.")] = "",
) -> OpenedRuns:
    """Start reading every run that was not read yet, one after the other; what slows each one down is then in the list."""
    unread = [
        run for run in _matching(service, q) if service.runs.get(run.id) is None and not service.runs.diagnoses(run)
    ]
    for run in unread[:MOST_AT_ONCE]:
        service.runs.open(run)
    return OpenedRuns(opened=len(unread[:MOST_AT_ONCE]))


def _matching(service: Service, text: str) -> list[FoundRun]:
    wanted = text.lower()
    return [
        run
        for run in service.catalogue.runs(wait=1.5)
        if wanted in run.name.lower() or any(wanted in name for name in run.formats)
    ]


@router.get("/runs/{run_id}", responses={code: PROBLEMS[code] for code in (404, 410, 422)})
def get_run(run_id: RunId, service: ServiceDependency, lang: LanguageQuery = "en") -> RunInfo:
    """One run and its state; also whether its files changed since it was read."""
    found = service.find_run(run_id)
    run = service.runs.get(run_id)
    info = _info(run.found if run else found, service, lang)
    if run is not None and run.state.phase == READY:
        now = service.rescan(run.found)
        if now is None:
            raise GoneError("run_gone", name=found.name)
        info.stale = now.fingerprint != run.found.fingerprint
    return info


@router.post("/runs/{run_id}/open", status_code=202, responses={code: PROBLEMS[code] for code in (404, 410, 422)})
def open_run(
    run_id: RunId,
    service: ServiceDependency,
    again: Annotated[bool, Query(description="Read it again, with its files as they are now.")] = False,
    lang: LanguageQuery = "en",
) -> RunInfo:
    """Start reading a run unless it is open. Its files are only read; the result is kept in Paceline's cache."""
    found = service.find_run(run_id)
    if again:
        found = _rescanned(found, service)
    service.runs.open(found, again=again)
    return _info(found, service, lang)


@router.get("/runs/{run_id}/overview", responses=PROBLEMS | json_document(ServedReport), response_class=Response)
async def overview(request: Request, run: RunDependency, lang: LanguageQuery = "en") -> Response:
    """The diagnosis and the small tables that all pages share: schema "paceline.report/1"."""
    return _gzip_response(request, run.report(lang))


@router.get("/runs/{run_id}/overview/{part}", responses=PROBLEMS | json_document(ReportTables), response_class=Response)
async def overview_part(request: Request, run: RunDependency, part: Part) -> Response:
    """Tables of the same document that one section needs: arrivals, communication operators by rank."""
    return _gzip_response(request, run.lazy_tables(part))


def _gzip_response(request: Request, packed: bytes) -> Response:
    """Compressed as cached, unless the client does not accept gzip."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(packed), media_type="application/json")
    headers = {"content-encoding": "gzip", "vary": "Accept-Encoding"}
    return Response(packed, media_type="application/json", headers=headers)


def _rescanned(found: FoundRun, service: Service) -> FoundRun:
    now = service.rescan(found)
    if now is None:
        raise GoneError("run_gone", name=found.name)
    return now


def _info(found: FoundRun, service: Service, language: Language) -> RunInfo:
    run = service.runs.get(found.id)
    state = run.state if run else ReadState(FOUND)
    info = RunInfo(
        id=found.id,
        name=found.name,
        formats=list(found.formats),
        ranks=found.ranks,
        files=found.files,
        bytes=found.size,
        changed=found.changed,
        state=Progress(phase=state.phase, done=state.done, total=state.total, message=state.message, hint=state.hint),
    )
    diagnoses = service.runs.diagnoses(found)
    if diagnoses:
        _add_diagnosis(info, diagnoses[language])
    return info


def _add_diagnosis(info: RunInfo, diagnosis: Diagnosis) -> None:
    findings = diagnosis.findings
    info.findings = len(findings)
    info.ranks = diagnosis.run.ranks
    info.step_ms = diagnosis.run.step_ms.median
    if findings:
        info.worst, info.severity = findings[0].title, findings[0].severity
        info.gain_percent = findings[0].gain.percent
