"""An HTTP proxy that injects faults: bursts of 503, truncated and damaged responses, blocked requests."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    size: int
    range: str
    token: str = ""

    @property
    def is_part(self) -> bool:
        return self.method == "PUT" and "partNumber=" in self.path

    @property
    def is_read(self) -> bool:
        return self.method == "GET" and bool(self.range)


@dataclass(frozen=True)
class Status:
    """Respond with this status instead of forwarding the request."""

    code: int
    error: str = "SlowDown"


class Cut:
    """Half of the response, then the connection is closed."""


class Damage:
    """One bit of the response flipped."""


class Drop:
    """No response: the connection is closed."""


class Hold:
    """Wait until the test releases it (or ends)."""


Fault = Callable[[Request], Any]


class Proxy:
    """Between a client and a server; `fault` is called for every request, `seen` records them all."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.seen: list[Request] = []
        self.fault: Fault = lambda _: None
        self.withheld: frozenset[str] = frozenset()
        """Headers the server does not get to see."""
        self.held = threading.Event()
        self.release = threading.Event()
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def count(self, wanted: Callable[[Request], bool]) -> int:
        with self.lock:
            return sum(map(wanted, self.seen))

    def forget(self) -> None:
        with self.lock:
            self.seen.clear()


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, TimeoutError):
                pass  # the client was killed: that is what these tests do

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("x-amz-security-token", "")
            request = Request(self.command, self.path, len(body), self.headers.get("Range", ""), token)
            with proxy.lock:
                proxy.seen.append(request)
                fault = proxy.fault(request)
            if isinstance(fault, Hold):
                proxy.held.set()
                proxy.release.wait(600)
                fault = None
            if isinstance(fault, Drop):
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            elif isinstance(fault, Status):
                self._say(fault.code, [], f"<Error><Code>{fault.error}</Code></Error>".encode())
            else:
                self._ask(body, fault)

        def _ask(self, body: bytes, fault: Any) -> None:
            upstream = http.client.HTTPConnection(proxy.upstream.netloc, timeout=600)
            try:
                headers = {name: value for name, value in self.headers.items() if name.lower() not in proxy.withheld}
                upstream.request(self.command, self.path, body=body or None, headers=headers)
                answer = upstream.getresponse()
                data = answer.read()
            except OSError:
                self._say(502, [], b"")
                return
            finally:
                upstream.close()
            headers = [
                (k, v)
                for k, v in answer.getheaders()
                if k.lower() not in ("content-length", "connection", "transfer-encoding")
            ]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            if isinstance(fault, Damage) and data:
                data = bytes([data[0] ^ 1]) + data[1:]
            self._say(answer.status, headers, data, cut=isinstance(fault, Cut), length=length)

        def _say(
            self,
            status: int,
            headers: list[tuple[str, str]],
            data: bytes,
            *,
            cut: bool = False,
            length: str | None = None,
        ) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    return Handler


class StallingProxy:
    """A TCP proxy that passes `most` bytes of responses and then stalls."""

    def __init__(self, address: str, port: int, most: int) -> None:
        self._upstream, self._left = (address, port), most
        self.held = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with source, target:
            try:
                while data := source.recv(65536):
                    if answers and not self._allow(len(data)):
                        self.held.set()
                        self._over.wait(600)
                        return
                    target.sendall(data)
            except OSError:
                return

    def _allow(self, size: int) -> bool:
        with self._lock:
            self._left -= size
            return self._left >= 0
