"""The FastAPI application: pages at /, REST API below /api/v1, OpenAPI document at /api/v1/openapi.json."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import duckdb
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from paceline.core.errors import PacelineError
from paceline.core.version import __version__
from paceline.diagnosis.hardware import Hardware
from paceline.web.api import cards, charts, comparisons, runs, tables, timelines, what_ifs
from paceline.web.api.comparisons import RunComparison
from paceline.web.api.tables import TableRows
from paceline.web.openapi import describe_documents
from paceline.web.problems import ServerError, requested_language
from paceline.web.run_cache import ReportTables, ServedReport
from paceline.web.security import AccessGuard, AccessRules
from paceline.web.service import Service, problem_response

STATIC = Path(__file__).parent / "static"
DOCUMENTS = (ServedReport, ReportTables, RunComparison, TableRows)
"""What msgspec writes; all other answers are FastAPI's own models."""
_PAGES = ("runs", "compare")


def create_app(base: Path, rules: AccessRules, hardware: Hardware | None = None) -> FastAPI:
    """The application for one base directory; `hardware` describes the cards the runs were recorded on."""
    service = Service(base, hardware)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.catalogue.refresh()
        yield
        service.runs.close()

    app = FastAPI(
        title="Paceline",
        version=__version__,
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        description="Cluster profiles below one directory: runs, tables, charts, timelines, what-ifs.",
    )
    app.state.service = service
    for module in (runs, tables, charts, cards, timelines, what_ifs, comparisons):
        app.include_router(module.router, prefix="/api/v1")
    app.add_exception_handler(PacelineError, _problem)
    app.add_exception_handler(duckdb.Error, _problem)
    app.add_exception_handler(RequestValidationError, _invalid_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=3)
    app.add_middleware(AccessGuard, rules=rules)
    describe_documents(app, DOCUMENTS)
    _add_pages(app)
    return app


def _add_pages(app: FastAPI) -> None:
    app.mount("/assets", StaticFiles(directory=STATIC / "assets", check_dir=False), name="assets")

    async def page(request: Request) -> Response:
        """Every address of the pages is the same document; the page reads the address itself."""
        if not (STATIC / "index.html").is_file():
            return problem_response(ServerError("pages_not_built"), requested_language(request))
        return FileResponse(STATIC / "index.html", media_type="text/html")

    app.add_api_route("/", page, include_in_schema=False)
    for name in _PAGES:
        app.add_api_route(f"/{name}", page, include_in_schema=False)
        app.add_api_route(f"/{name}/{{rest:path}}", page, include_in_schema=False)


async def _problem(request: Request, error: Exception) -> Response:
    return problem_response(error, requested_language(request))


async def _invalid_parameter(_: Request, error: Exception) -> Response:
    """Which parameter is wrong and why; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}", "hint": None, "phase": None}, 422)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return JSONResponse({"error": str(error.detail), "hint": None, "phase": None}, error.status_code, headers)
