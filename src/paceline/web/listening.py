"""Listening: a socket bound before anything is said, and a server with limits."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from paceline.advice.hardware import Hardware
from paceline.errors import PacelineError
from paceline.web.app import create_app
from paceline.web.security import Rules

AT_ONCE = 256
"""Connections beyond this are answered with 503."""


def listen(
    directory: Path,
    rules: Rules,
    *,
    host: str,
    port: int,
    announce: Callable[[str], None],
    hardware: Hardware | None = None,
) -> None:
    """Serve the pages until stopped; `announce` is given the address once it is bound."""
    listen_with(create_app(directory, rules, hardware), host=host, port=port, announce=announce)


def listen_with(app: ASGIApp, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """The same for any application."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named asyncio sends small answers at once; without, each waits 40 ms for the client's receipt.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except OSError as error:
            raise PacelineError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="try another --port (0 = any free one)",
            ) from error
        # "All addresses" is none that a browser could open.
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{name}]" if ":" in name else name
        announce(f"http://{shown}:{bound.getsockname()[1]}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, limit_concurrency=AT_ONCE,
            timeout_keep_alive=30, timeout_graceful_shutdown=3, server_header=False, proxy_headers=False,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[bound])
