"""What every endpoint needs: the catalogue, the open runs, bounded work, and the shape of errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import duckdb
import msgspec
from fastapi import Depends
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paceline.core.errors import PacelineError
from paceline.core.i18n import Language
from paceline.diagnosis.hardware import Hardware, default_hardware
from paceline.web.binary_columns import MEDIA_TYPE
from paceline.web.catalogue import Catalogue, FoundRun, rescan_run
from paceline.web.comparison_cache import ComparisonCache
from paceline.web.problems import GoneError, NotFoundError, ServerError, status_of
from paceline.web.request_limiter import RequestLimiter
from paceline.web.run_cache import CachedRun, NotReadyError, Phase, RunCache
from paceline.web.snapshot import Snapshot

RESCAN_SECONDS = 5.0

Result = TypeVar("Result")


class Answer(BaseModel):
    """Base of all answers: their schemas hold the texts below fields, and name every field as present."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, use_attribute_docstrings=True)


class Problem(Answer):
    """Every answer that is not what was asked for."""

    error: str
    hint: str | None = None
    phase: Phase | None = None


class Service:
    """State of one server, shared by all requests."""

    def __init__(self, base: Path, hardware: Hardware | None = None) -> None:
        self.catalogue = Catalogue(base)
        self.runs = RunCache(self.catalogue.base, hardware or default_hardware())
        self.comparisons = ComparisonCache()
        self.limiter = RequestLimiter()
        self._rescans: dict[str, tuple[float, FoundRun | None]] = {}

    def find_run(self, run_id: str) -> FoundRun:
        found = self.catalogue.get(run_id)
        opened = self.runs.get(run_id)
        if found is None and opened is None:
            raise NotFoundError("no_run", run=run_id)
        known = found or (opened.found if opened else None)
        assert known is not None
        if not known.path.exists():
            raise GoneError("run_gone", name=known.name)
        return known

    def rescan(self, found: FoundRun) -> FoundRun | None:
        """The run as its files are now, scanned at most every few seconds; None when they are gone."""
        at, known = self._rescans.get(found.id, (0.0, None))
        if time.monotonic() - at > RESCAN_SECONDS:
            known = rescan_run(found, self.catalogue.base)
            self._rescans[found.id] = (time.monotonic(), known)
        return known

    def cached_run(self, run_id: str) -> CachedRun:
        """A run in the cache, ready or not; one that is not cached yet is queued for reading."""
        found = self.find_run(run_id)
        run = self.runs.get(run_id)
        if run is None:
            raise NotReadyError(self.runs.open(found).state)
        return run


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDependency = Annotated[Service, Depends(get_service)]
RunId = Annotated[
    str, PathParameter(description="Id of a run, from /api/v1/runs.", max_length=64, examples=["llama-16-9a916f"])
]


def get_run(run_id: RunId, service: ServiceDependency) -> CachedRun:
    """Not async: searching for an unknown run may take seconds and must not block other requests."""
    return service.cached_run(run_id)


RunDependency = Annotated[CachedRun, Depends(get_run)]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "Bad request",
        404: "Not found",
        409: "The run is being read; ask again",
        410: "The files of the run were moved or deleted",
        422: "A parameter has the wrong type or range",
        500: "The run could not be read",
        503: "Too many requests at once",
        504: "Timed out",
    }.items()
}
JSON_OBJECT: dict[str, Any] = {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "JSON"}
BINARY: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "Columns as bytes",
    }
}


async def query_run(request: Request, run: CachedRun, query: Callable[[Snapshot], Result]) -> Result:
    """Run a query on the tables of a run; the result of an earlier request with the same parameters is reused."""
    key = f"{request.url.path}?{request.url.query}"
    run.last_used = time.monotonic()
    known: Result | None = run.responses.get(key)
    if known is None:
        known = await get_service(request).limiter.query(request, run, query)
        run.responses.put(key, known)
    return known


def json_bytes(value: object) -> Response:
    """JSON written by msgspec; NaN becomes null."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def binary(data: bytes) -> Response:
    """Sent uncompressed: compressing numbers takes longer than transferring them."""
    return Response(data, media_type=MEDIA_TYPE, headers={"content-encoding": "identity"})


def problem_response(error: Exception, language: Language) -> Response:
    """One shape for every error; the status says whether the client, the run or the server has to change."""
    if isinstance(error, duckdb.Error):
        logging.getLogger("uvicorn.error").error("a query failed: %s", error)
        error = ServerError("store_unreadable")
    assert isinstance(error, PacelineError)
    if isinstance(error, ServerError):
        problem = Problem(error=error.message(language), hint=error.hint_in(language))
    else:
        problem = Problem(error=str(error), hint=error.hint)
    if isinstance(error, NotReadyError):
        problem.phase = error.state.phase
    return JSONResponse(problem.model_dump(), status_of(error))
