"""Bounded work: so many at a time, so long each, and none for a client that has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import duckdb
from starlette.requests import Request

from paceline.errors import PacelineError
from paceline.web.opened import OpenRun
from paceline.web.snapshot import Snapshot

AT_ONCE = 4
LONGEST_SECONDS = 20.0
MOST_WAITING = 64

Result = TypeVar("Result")


class BusyError(PacelineError):
    """Too many requests are waiting (503)."""


class TooLongError(PacelineError):
    """The request was stopped because it took too long (504)."""


class ClientGoneError(PacelineError):
    """Nobody is there to read the answer."""


class Work:
    """Runs questions in threads. A question that takes too long or whose client leaves is interrupted in the database."""

    def __init__(self, *, at_once: int = AT_ONCE, longest: float = LONGEST_SECONDS) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._longest = longest
        self._waiting = 0

    async def ask(self, request: Request, opened: OpenRun, question: Callable[[Snapshot], Result]) -> Result:
        """Answer a question about the copy of a run's tables."""
        with opened.snapshot() as snapshot:
            return await self.do(request, lambda: question(snapshot), stop=snapshot.cursor.interrupt)

    async def do(
        self, request: Request, work: Callable[[], Result], *, stop: Callable[[], None] | None = None
    ) -> Result:
        """Do some work in a thread; `stop` makes it end early."""
        if self._waiting >= MOST_WAITING:
            raise BusyError("too many requests at once", hint="try again in a moment")
        self._waiting += 1
        try:
            async with self._slots:
                return await self._watched(request, work, stop)
        finally:
            self._waiting -= 1

    async def _watched(self, request: Request, work: Callable[[], Result], stop: Callable[[], None] | None) -> Result:
        task = asyncio.ensure_future(asyncio.to_thread(work))
        gone = asyncio.ensure_future(_left(request))
        done, _ = await asyncio.wait({task, gone}, timeout=self._longest, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if task in done:
            return task.result()
        if stop is not None:
            stop()
        with suppress(duckdb.Error, PacelineError):
            # An interrupted query raises; the thread must be done before its cursor is closed.
            await task
        if gone in done:
            raise ClientGoneError("the client has left")
        raise TooLongError(
            f"this took longer than {self._longest:g} seconds and was stopped",
            hint="ask for less: fewer ranks or steps",
        )


async def _left(request: Request) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
