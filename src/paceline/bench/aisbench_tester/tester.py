"""The tester server: receives benchmark results, validates them and stores each in its own file."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paceline.bench.aisbench_tester.send_result import RESULTS, TesterReport
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError
from paceline.web.security import AccessGuard, AccessRules

LARGEST = 16 << 20
"""Bytes of one result."""
_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,100}")


def create_tester(directory: Path, rules: AccessRules) -> Starlette:
    """POST a report to /api/v1/results, GET the list of names, GET one report."""
    stored = _ResultStore(directory)

    async def take(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return _problem(400, "the body ended too early, or is too large")
        try:
            report = msgspec.json.decode(body, type=TesterReport)
        except (msgspec.DecodeError, RecursionError) as error:
            return _problem(422, f"not a benchmark report: {error}")
        try:
            name, new = await run_in_threadpool(stored.store, report)
        except PacelineError as error:
            return _problem(422 if error.exit_code == 2 else 507, str(error))
        return JSONResponse({"name": name}, 201 if new else 200)

    async def names(_: Request) -> Response:
        return JSONResponse({"results": await run_in_threadpool(stored.names)})

    async def one(request: Request) -> Response:
        text = await run_in_threadpool(stored.read, request.path_params["name"])
        return Response(text, media_type="application/json") if text is not None else _problem(404, "result not found")

    app = Starlette(
        routes=[
            Route(RESULTS, take, methods=["POST"]),
            Route(RESULTS, names, methods=["GET"]),
            Route(RESULTS + "/{name}", one, methods=["GET"]),
        ]
    )
    app.add_middleware(AccessGuard, rules=rules, most_body=LARGEST)
    return app


class _ResultStore:
    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, threading.Lock()

    def store(self, report: TesterReport) -> tuple[str, bool]:
        """The name, and whether it is new; a different result with a known name is refused, never overwritten."""
        name = f"{report.test_id}-{report.result.id}"
        if not _NAME.fullmatch(report.test_id) or not _NAME.fullmatch(report.result.id):
            raise _Refused("test_id and result.id: use at most 100 letters, digits and _.+-")
        target = self._directory / f"{name}.json"
        data = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        with self._lock:
            if target.exists():
                if target.read_text(encoding="utf-8") != data:
                    raise _Refused(f"{name}: a different result with this name already exists")
                return name, False
            atomic_write_text(target, data)
        return name, True

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._directory.glob("[!.]*.json"))

    def read(self, name: str) -> str | None:
        if not re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,201}", name):
            return None
        try:
            return (self._directory / f"{name}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


class _Refused(PacelineError):
    exit_code = 2


def _problem(status: int, text: str) -> Response:
    return JSONResponse({"error": text, "hint": None}, status)
