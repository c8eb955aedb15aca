"""Network test mode: a result on its way to the tester, again while the way is bad."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from paceline.bench.result import Result, train_result_info
from paceline.bench.tester_config import TesterConfig
from paceline.errors import PacelineError, UsageError
from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import TransientError

SCHEMA = "paceline.bench-report/1"
RESULTS = "/api/v1/results"
_PATIENCE = Backoff(first=0.5, most=15.0, patience=120.0)
_TIMEOUT = 30.0


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """What is POSTed: who tests what, the documented result, ours in full, and the machine."""

    test_id: str
    mode: str
    model: str
    division: str
    scenario: str
    test_object_type: str
    train_result_info: dict[str, str | float | None]
    result: Result
    system: dict[str, Any] = {}


def report_of(result: Result, config: TesterConfig, system: dict[str, Any] | None = None) -> Report:
    return Report(
        test_id=config.test_id,
        mode=config.mode,
        model=config.model or result.name,
        division=config.division,
        scenario=config.scenario,
        test_object_type=config.test_object_type or ("single" if result.largest.nodes == 1 else "cluster"),
        train_result_info=train_result_info(result),
        result=result,
        system=system or {},
    )


def send(report: Report, config: TesterConfig, *, backoff: Backoff = _PATIENCE) -> str:
    """POST it; returns the name the tester keeps it under. Sent twice it is kept once: retries are safe."""
    token = os.environ.get("PACELINE_TESTER_TOKEN")
    if token and not config.tester_server_https and not config.is_loopback:
        raise UsageError(
            f"{config.url}: the token of PACELINE_TESTER_TOKEN would travel readable for everybody on the way",
            hint="set tester_server_https in config.json, or reach the tester through an SSH tunnel on 127.0.0.1",
        )
    body = msgspec.json.encode(report)
    return patiently(backoff, lambda: _post(config.url + RESULTS, body, token))


def _post(url: str, body: bytes, token: str | None) -> str:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(Request(url, data=body, headers=headers, method="POST"), timeout=_TIMEOUT) as answer:
            kept = json.loads(answer.read(64 * 1024)).get("name")
    except HTTPError as error:
        with error:
            said = error.read(2000).decode(errors="replace")
        if error.code in (408, 429) or error.code >= 500:
            raise TransientError(f"{url}: {error.code} {error.reason}") from error
        raise PacelineError(
            f"{url}: the tester refused the result: {error.code} {said}", hint=_hint(error.code)
        ) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise TransientError(
            f"{url}: the tester cannot be reached: {getattr(error, 'reason', None) or error}",
            hint="the result is kept; send it later with: paceline bench send",
        ) from error
    except ValueError as error:
        raise PacelineError(f"{url}: answered with something that is no JSON; not a tester?") from error
    return str(kept)


def _hint(code: int) -> str | None:
    return "set PACELINE_TESTER_TOKEN to the tester's token" if code in (401, 403) else None
