"""Errors of the server: every text exists in both languages, and the client's language is used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest
from starlette.requests import Request

import paceline.web
from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import catalogue
from paceline.web.problems import NotFoundError, requested_language
from paceline.web.run_cache import FAILED, READING, NotReadyError, ReadState
from paceline.web.service import problem_response

RAISED = re.compile(
    r"(?:ServerError|BadRequestError|NotFoundError|GoneError|BusyError|TooLongError|ClientGoneError)\(\s*\"(\w+)\""
)


def request(query: str = "", accepted: str | None = None) -> Request:
    headers = [(b"accept-language", accepted.encode())] if accepted else []
    return Request({"type": "http", "query_string": query.encode(), "headers": headers})


def test_every_error_of_the_server_is_in_the_catalogue_and_none_is_unused() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(paceline.web.__file__).parent.rglob("*.py")]
    raised = {key for source in sources for key in RAISED.findall(source)} | {"not_ready"}
    assert {f"server.{key}" for key in raised} == {key for key in catalogue("server") if not key.endswith(".hint")}


@pytest.mark.parametrize(
    ("query", "accepted", "language"),
    [
        ("", None, "en"),
        ("lang=zh", "en", "zh"),
        ("lang=en", "zh-CN,zh;q=0.9", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "de,en;q=0.8", "en"),
    ],
)
def test_the_address_decides_before_the_clients_languages(query: str, accepted: str | None, language: str) -> None:
    assert requested_language(request(query, accepted)) == language


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (NotFoundError("no_rank", rank=99), 404, "该任务没有 99 号卡"),
        (NotReadyError(ReadState(READING)), 409, "该任务尚未就绪：reading"),
        (NotReadyError(ReadState(FAILED, message="cut off")), 500, "cut off"),
        (UsageError("--fix x: not a fix"), 400, "--fix x: not a fix"),
        (PacelineError("disk full"), 500, "disk full"),
        (duckdb.Error("secret"), 500, "该任务的数据表已无法读取"),
    ],
)
def test_an_error_has_a_status_and_a_text(error: Exception, status: int, message: str) -> None:
    response = problem_response(error, "zh")
    assert response.status_code == status
    assert json.loads(bytes(response.body))["error"] == message
    assert set(json.loads(bytes(response.body))) == {"error", "hint", "phase"}


def test_hints_are_translated_too() -> None:
    error = NotFoundError("no_run", run="a-1")
    assert (str(error), error.hint) == ("run 'a-1' not found", "list of runs: /api/v1/runs")
    assert error.hint_in("zh") == "任务列表：/api/v1/runs"
