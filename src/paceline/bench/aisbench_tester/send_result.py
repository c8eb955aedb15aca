"""Network test mode: send a result to the tester server, with retries."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from paceline.bench.aisbench_tester.tester_config import TesterConfig
from paceline.bench.result import BenchResult, train_result_info
from paceline.core.errors import PacelineError, UsageError
from paceline.core.waiting import waiting_for
from paceline.storage.store_errors import TransientError
from paceline.storage.transfer.retry import Backoff, retry_call

SCHEMA = "paceline.bench-report/1"
RESULTS = "/api/v1/results"
_PATIENCE = Backoff(first_wait=0.5, longest_wait=15.0, patience=120.0)
_TIMEOUT = 30.0


class TesterReport(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """The POST body: test and model, ais-bench's result fields, the complete result, and the machine."""

    test_id: str
    mode: str
    model: str
    division: str
    scenario: str
    test_object_type: str
    train_result_info: dict[str, str | float | None]
    result: BenchResult
    system: dict[str, Any] = {}


def report_of(result: BenchResult, config: TesterConfig, system: dict[str, Any] | None = None) -> TesterReport:
    return TesterReport(
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


def send(report: TesterReport, config: TesterConfig, *, backoff: Backoff = _PATIENCE) -> str:
    """POST a report; returns the name it is stored under. Sending twice stores it once: retries are safe."""
    token = os.environ.get("PACELINE_TESTER_TOKEN")
    if token and not config.tester_server_https and not config.is_loopback:
        raise UsageError(
            f"{config.url}: the token in PACELINE_TESTER_TOKEN would be sent unencrypted",
            hint="set tester_server_https in config.json, or use an SSH tunnel on 127.0.0.1",
        )
    body = msgspec.json.encode(report)
    with waiting_for(f"the tester server at {config.url}"):
        return retry_call(backoff, lambda: _post(config.url + RESULTS, body, token))


def _post(url: str, body: bytes, token: str | None) -> str:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(Request(url, data=body, headers=headers, method="POST"), timeout=_TIMEOUT) as answer:
            kept = json.loads(answer.read(64 * 1024)).get("name")
    except HTTPError as error:
        with error:
            reason = error.read(2000).decode(errors="replace")
        if error.code in (408, 429) or error.code >= 500:
            raise TransientError(f"{url}: {error.code} {error.reason}") from error
        raise PacelineError(
            f"{url}: the tester refused the result: {error.code} {reason}", hint=_hint(error.code)
        ) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise TransientError(
            f"could not connect to {url} ({getattr(error, 'reason', None) or error})",
            hint="the result is stored; send it later with: paceline bench send",
        ) from error
    except ValueError as error:
        raise PacelineError(f"{url}: the answer is not JSON: not a tester server?") from error
    return str(kept)


def _hint(code: int) -> str | None:
    return "set PACELINE_TESTER_TOKEN to the tester's token" if code in (401, 403) else None
