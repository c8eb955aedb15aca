"""Connections that never finish their request: closed after a while, and first when there are too many."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""From the first moment of a connection, or the first byte of a further request, to the end of its headers."""
MOST_CONNECTIONS = 2048


def connection_limit() -> int:
    """How many connections may be open: half of the descriptors that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(MOST_CONNECTIONS, soft // 2)


class ImpatientProtocol(H11Protocol):
    """Requests must be sent in full within a time; where too many connections are open, the one that has waited longest
    for the rest of its request makes room, so that honest clients are answered while others send nothing."""

    limit = MOST_CONNECTIONS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()
        if len(self.connections) > self.limit:
            self._drop_the_oldest()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        else:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop_the_oldest(self) -> None:
        waiting = [each for each in self.connections if isinstance(each, ImpatientProtocol) and each._deadline]
        oldest = min(waiting, key=lambda each: each._deadline.when() if each._deadline else 0.0, default=None)
        if oldest is not None:
            oldest.transport.abort()
