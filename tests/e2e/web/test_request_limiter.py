"""Work is bounded: it ends when it takes too long, when its client leaves, and when there is too much of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import duckdb
import pytest
from starlette.requests import Request

from paceline.web.problems import BusyError, ClientGoneError, TooLongError
from paceline.web.request_limiter import MOST_WAITING, RequestLimiter

ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) AS a, range(10000000) AS b"


def request(leaves_after: float | None = None) -> Request:
    async def receive() -> dict[str, object]:
        await asyncio.sleep(3600 if leaves_after is None else leaves_after)
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}, receive)


def endless() -> tuple[Callable[[], object], Callable[[], None]]:
    connection = duckdb.connect()
    return lambda: connection.execute(ENDLESS).fetchall(), connection.interrupt


def test_a_query_that_takes_too_long_is_stopped() -> None:
    work, stop = endless()

    async def ask() -> None:
        await RequestLimiter(timeout=0.3).run(request(), work, stop=stop)

    with pytest.raises(TooLongError, match=r"timed out after 0\.3 seconds"):
        asyncio.run(ask())


def test_a_query_whose_client_left_is_stopped_in_the_database() -> None:
    work, stop = endless()
    began = time.monotonic()

    async def ask() -> None:
        await RequestLimiter(timeout=1200).run(request(leaves_after=0.2), work, stop=stop)

    with pytest.raises(ClientGoneError):
        asyncio.run(ask())
    assert time.monotonic() - began < 600, "the thread ended long before its limit"


def test_too_much_at_once_is_refused() -> None:
    free = threading.Event()

    async def flood() -> list[object]:
        limiter = RequestLimiter(at_once=1)
        asking = [
            asyncio.ensure_future(limiter.run(request(), lambda: free.wait(600))) for _ in range(MOST_WAITING + 1)
        ]
        await asyncio.sleep(0.2)
        free.set()
        return list(await asyncio.gather(*asking, return_exceptions=True))

    responses = asyncio.run(flood())
    assert sum(isinstance(response, BusyError) for response in responses) == 1
    assert responses.count(True) == MOST_WAITING
