"""Clients that never finish their request, guess tokens, or send nonsense: honest ones are answered all the while."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx

from paceline.web.connections import HEADER_SECONDS
from support.web.servers import Serve, Server, get, post

HALF = b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def test_half_open_connections_keep_nobody_out(serve: Serve, base: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    server: Server = serve(base)
    host, port = server.url.removeprefix("http://").split(":")
    with ExitStack() as open_ones:
        begin = time.monotonic()
        slow = [open_ones.enter_context(socket.create_connection((host, int(port)), 600)) for _ in range(1000)]
        for each in slow:
            with suppress(OSError):  # closed already, where a thousand connections take longer than they may
                each.sendall(HALF)
        for _ in range(20):
            assert get(f"{server.url}/api/v1/runs").status_code == 200
        assert _is_closed(slow[0])
        assert time.monotonic() - begin >= HEADER_SECONDS - 1
    assert get(f"{server.url}/api/v1/runs").status_code == 200


def test_a_second_request_has_a_time_limit_too(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 600) as client:
        client.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1 << 20).startswith(b"HTTP/1.1 200")
        client.sendall(HALF)
        assert _is_closed(client)


def test_guessing_tokens_gets_slower(serve: Serve, base: Path) -> None:
    server: Server = serve(base, "--host", "0.0.0.0", token="correct-horse-battery")
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for _ in range(5):  # on a busy machine a delay may just be over when the right token comes
            codes = [client.post("/login", data={"token": f"guess-{i}"}).status_code for i in range(30)]
            assert codes[0] == 401
            assert 429 in codes
            told = client.get("/api/v1/runs", headers={"authorization": "Bearer correct-horse-battery"})
            if told.status_code == 429:
                break
        assert told.status_code == 429
        assert int(told.headers["retry-after"]) >= 1
        assert "try again in" in told.json()["hint"]


def test_a_malformed_origin_is_a_bad_request(server: Server) -> None:
    for origin in ("http://[", "http://[::1", "//[x"):
        answer = post(f"{server.url}/api/v1/runs/x/open", headers={"origin": origin})
        assert answer.status_code == 400, origin


def _is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True
