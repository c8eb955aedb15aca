"""Bind the socket, announce the address, and run the server with limits."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from paceline.core.errors import PacelineError
from paceline.diagnosis.hardware import Hardware
from paceline.web.app import create_app
from paceline.web.connections import ImpatientProtocol, connection_limit
from paceline.web.security import AccessRules


def listen(
    directory: Path,
    rules: AccessRules,
    *,
    host: str,
    port: int,
    announce: Callable[[str], None],
    hardware: Hardware | None = None,
) -> None:
    """Serve the pages until stopped; `announce` gets the address once the socket is bound."""
    listen_with(create_app(directory, rules, hardware), host=host, port=port, announce=announce)


def listen_with(app: ASGIApp, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """The same for any application."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only when the protocol is named; without it each small response waits 40 ms for an ACK.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise PacelineError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="try another --port (0 = any free one)",
            ) from error
        # A browser cannot open the wildcard address.
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{name}]" if ":" in name else name
        announce(f"http://{shown}:{bound.getsockname()[1]}")
        ImpatientProtocol.limit = connection_limit()
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            http=ImpatientProtocol,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            server_header=False,
            proxy_headers=False,
        )
        uvicorn.Server(config).run(sockets=[bound])
