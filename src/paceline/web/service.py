"""What every endpoint needs: the catalogue, the open runs, bounded work; and how errors are told."""

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
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paceline.advice.hardware import Hardware, usual_hardware
from paceline.errors import PacelineError, UsageError
from paceline.web.catalogue import Catalogue, FoundRun, look_again
from paceline.web.columns import MEDIA_TYPE
from paceline.web.compared import Comparisons
from paceline.web.opened import FAILED, NotReadyError, OpenRun, OpenRuns
from paceline.web.snapshot import Snapshot
from paceline.web.work import BusyError, ClientGoneError, TooLongError, Work

LOOK_AGAIN_SECONDS = 5.0

Result = TypeVar("Result")


class NotFoundError(PacelineError):
    """No such run, table or rank (404)."""


class GoneError(PacelineError):
    """The files of a run are no longer there (410)."""


class Problem(BaseModel):
    """Every answer that is not what was asked for."""

    error: str
    hint: str | None = None
    phase: str | None = None


class Service:
    """One per server."""

    def __init__(self, base: Path, hardware: Hardware | None = None) -> None:
        self.catalogue = Catalogue(base)
        self.runs = OpenRuns(self.catalogue.base, hardware or usual_hardware())
        self.comparisons = Comparisons()
        self.work = Work()
        self._looked: dict[str, tuple[float, FoundRun | None]] = {}

    def found(self, run_id: str) -> FoundRun:
        found = self.catalogue.get(run_id)
        opened = self.runs.get(run_id)
        if found is None and opened is None:
            raise NotFoundError(f"there is no run {run_id!r} here", hint="the list of runs: /api/v1/runs")
        known = found or (opened.found if opened else None)
        assert known is not None
        if not known.path.exists():
            raise GoneError(f"the run {known.name} is no longer there", hint="it was moved or deleted while you looked")
        return known

    def now(self, found: FoundRun) -> FoundRun | None:
        """The run as it lies there now, looked up at most every few seconds."""
        at, known = self._looked.get(found.id, (0.0, None))
        if time.monotonic() - at > LOOK_AGAIN_SECONDS:
            known = look_again(found, self.catalogue.base)
            self._looked[found.id] = (time.monotonic(), known)
        return known

    def opened(self, run_id: str) -> OpenRun:
        """A run that somebody has opened; it need not be ready."""
        found = self.found(run_id)
        opened = self.runs.get(run_id)
        if opened is None:
            raise NotReadyError(self.runs.open(found).state)
        return opened


def the_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceNow = Annotated[Service, Depends(the_service)]
RunId = Annotated[
    str, PathParameter(description="Id of a run, from /api/v1/runs.", max_length=64, examples=["llama-16-9a916f"])
]


def an_opened_run(run_id: RunId, service: ServiceNow) -> OpenRun:
    """Not async: looking for an unknown run may take a while, and must not hold up the others."""
    return service.opened(run_id)


Opened = Annotated[OpenRun, Depends(an_opened_run)]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "The request makes no sense",
        404: "No such run",
        409: "The run is being read; ask again",
        410: "The run is no longer there",
        422: "The parameters are not of the right kind",
        500: "The run could not be read",
        503: "Too many requests at once",
        504: "It took too long and was stopped",
    }.items()
}
JSON_OBJECT: dict[str, Any] = {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "JSON"}
BINARY: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "Columns as bytes",
    }
}


async def ask(request: Request, opened: OpenRun, question: Callable[[Snapshot], Result]) -> Result:
    """Answer a question about a run's tables; one that was asked before, with these very parameters, at once."""
    asked = f"{request.url.path}?{request.url.query}"
    opened.used = time.monotonic()
    known: Result | None = opened.answers.get(asked)
    if known is None:
        known = await the_service(request).work.ask(request, opened, question)
        opened.answers.put(asked, known)
    return known


def json_bytes(value: object) -> Response:
    """JSON written by msgspec: what is not a number is null."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def binary(data: bytes) -> Response:
    """Sent as they are: compressing numbers takes longer than moving them."""
    return Response(data, media_type=MEDIA_TYPE, headers={"content-encoding": "identity"})


def problem_response(error: Exception) -> Response:
    """One shape for every error, with the status that says whose turn it is."""
    if isinstance(error, duckdb.Error):
        logging.getLogger("uvicorn.error").error("a query failed: %s", error)
        return _problem(500, "the stored tables of this run cannot be read any more", "read it again")
    assert isinstance(error, PacelineError)
    phase = error.state.phase if isinstance(error, NotReadyError) else None
    return _problem(_status(error), str(error), error.hint, phase)


def _problem(status: int, message: str, hint: str | None = None, phase: str | None = None) -> Response:
    return JSONResponse({"error": message, "hint": hint, "phase": phase}, status)


def _status(error: PacelineError) -> int:
    if isinstance(error, NotReadyError):
        return 500 if error.state.phase == FAILED else 409
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return 500


_STATUSES: tuple[tuple[type[PacelineError], int], ...] = (
    (NotFoundError, 404),
    (GoneError, 410),
    (BusyError, 503),
    (TooLongError, 504),
    (ClientGoneError, 499),
    (UsageError, 400),
)
