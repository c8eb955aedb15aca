"""Request limiter: bounded concurrency, a timeout for each request, and cancellation when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import duckdb
from starlette.requests import Request

from paceline.core.errors import PacelineError
from paceline.web.problems import BusyError, ClientGoneError, TooLongError
from paceline.web.run_cache import CachedRun
from paceline.web.snapshot import Snapshot

AT_ONCE = 4
TIMEOUT_SECONDS = 20.0
MOST_WAITING = 64

Result = TypeVar("Result")


class RequestLimiter:
    """Runs questions in threads. A question that takes too long or whose client leaves is interrupted in the database."""

    def __init__(self, *, at_once: int = AT_ONCE, timeout: float = TIMEOUT_SECONDS) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._timeout = timeout
        self._waiting = 0

    async def query(self, request: Request, run: CachedRun, query: Callable[[Snapshot], Result]) -> Result:
        """Run a query on the snapshot of a run."""
        with run.snapshot() as snapshot:
            return await self.run(request, lambda: query(snapshot), stop=snapshot.cursor.interrupt)

    async def run(
        self, request: Request, work: Callable[[], Result], *, stop: Callable[[], None] | None = None
    ) -> Result:
        """Run `work` in a thread; `stop` interrupts it."""
        if self._waiting >= MOST_WAITING:
            raise BusyError("busy")
        self._waiting += 1
        try:
            async with self._slots:
                return await self._run_watched(request, work, stop)
        finally:
            self._waiting -= 1

    async def _run_watched(
        self, request: Request, work: Callable[[], Result], stop: Callable[[], None] | None
    ) -> Result:
        task = asyncio.ensure_future(asyncio.to_thread(work))
        gone = asyncio.ensure_future(_disconnected(request))
        done, _ = await asyncio.wait({task, gone}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if task in done:
            return task.result()
        if stop is not None:
            stop()
        with suppress(duckdb.Error, PacelineError):
            # An interrupted query raises; the thread must be done before its cursor is closed.
            await task
        if gone in done:
            raise ClientGoneError("client_gone")
        raise TooLongError("too_long", seconds=f"{self._timeout:g}")


async def _disconnected(request: Request) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
