"""Access control of the server: allowed host names, tokens, request sizes, and security headers of responses."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from math import ceil
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.web.login_delay import LoginDelay

COOKIE = "paceline"
LOGIN = "/login"
MOST_BODY = 64 * 1024
MOST_QUERY = 8 * 1024
_STATIC = ("/assets/",)

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

_LOGIN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Paceline</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/assets/login.css">
</head><body><main><h1>Paceline</h1>
<form method="post" action="/login">
<label for="token">Token · 令牌</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open · 进入</button>
<p role="alert">{problem}</p>
<p>It was printed where <code>paceline serve</code> was started. · 令牌显示在启动 <code>paceline serve</code> 的终端里。</p>
</form></main></body></html>
"""


@dataclass(frozen=True)
class AccessRules:
    """The host names the server accepts, and the token it requires (None: no token)."""

    names: frozenset[str]
    addresses: bool = False
    """Whether any numeric address is an accepted Host: only names can be rebound to another machine."""
    token: str | None = None

    def allows_host(self, header: str) -> bool:
        name = host_name(header)
        if name in self.names:
            return True
        return self.addresses and _is_address(name)

    def cookie(self) -> str:
        """The value of the cookie that a browser sends instead of the token."""
        assert self.token is not None
        return hmac.new(self.token.encode(), b"paceline cookie", hashlib.sha256).hexdigest()

    def has_cookie(self, headers: Headers) -> bool:
        return hmac.compare_digest(_cookie(headers).encode(), self.cookie().encode())

    def is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())


def rules_for(host: str, *, token: str | None, names: tuple[str, ...] = ()) -> AccessRules:
    """Loopback accepts its own names only; other addresses also this machine's name and the given names."""
    own = {"localhost", "127.0.0.1", "::1"} | {name.lower() for name in names}
    if is_loopback(host):
        return AccessRules(frozenset(own | {host.lower()}), token=token)
    own |= {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return AccessRules(frozenset(own), addresses=True, token=token)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header: "[::1]:8080" → "::1"; "" when it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


class AccessGuard:
    """Middleware that checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, rules: AccessRules, most_body: int = MOST_BODY) -> None:
        self.app, self.rules, self.most_body = app, rules, most_body
        self.delay = LoginDelay()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            response = await self._answer(scope, Headers(scope=scope), receive)
        except _TooManyTriesError as error:
            response = _error(
                429, "too many wrong tokens", f"try again in {error.seconds} s", retry_after=error.seconds
            )
        if response is not None:
            await response(scope, receive, _with_headers(send, scope))
            return
        await self.app(scope, _bounded(receive, self.most_body), _with_headers(send, scope))

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """The response to a request that the application must not see."""
        if response := self._refusal(scope, headers):
            return response
        if scope["path"] == LOGIN and self.rules.token is not None:
            return await self._login(scope, receive)
        if scope["path"].startswith(_STATIC) or self._is_authorized(scope, headers):
            return None
        return self._unauthorized(scope)

    def _is_authorized(self, scope: Scope, headers: Headers) -> bool:
        if self.rules.token is None or self.rules.has_cookie(headers):
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._is_right(scope, given.strip())

    def _is_right(self, scope: Scope, given: str) -> bool:
        """Whether this is the token; not looked at while an address that sent wrong ones has to wait."""
        address = str((scope.get("client") or ("",))[0])
        if (left := self.delay.seconds_left(address)) > 0:
            raise _TooManyTriesError(ceil(left))
        right = self.rules.is_token(given)
        (self.delay.note_right if right else self.delay.note_wrong)(address)
        return right

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if not self.rules.allows_host(headers.get("host", "")):
            return _error(421, "host name not allowed", "use --allow-host NAME to allow it")
        if len(scope["query_string"]) > MOST_QUERY:
            return _error(414, "the address is too long")
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            if origin is not None and (refused := self._origin_refusal(origin)):
                return refused
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > self.most_body:
                return _error(413, f"the request body is larger than {self.most_body} bytes")
        return None

    def _origin_refusal(self, origin: str) -> Response | None:
        try:
            host = urlsplit(origin).netloc
        except ValueError:
            return _error(400, "the Origin header is malformed")
        return None if self.rules.allows_host(host) else _error(403, "cross-origin requests are refused")

    async def _login(self, scope: Scope, receive: Receive) -> Response:
        if scope["method"] != "POST":
            return HTMLResponse(_LOGIN_PAGE.format(problem=""))
        given = parse_qs((await _body(receive)).decode("latin-1")).get("token", [""])[0]
        if not self._is_right(scope, given):
            return HTMLResponse(_LOGIN_PAGE.format(problem="Wrong token. · 令牌不正确。"), 401)
        return self._logged_in("/")

    def _unauthorized(self, scope: Scope) -> Response:
        """The printed address carries the token once; then the browser gets a cookie and an address without it."""
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = query.pop("token", [""])[0]
        if scope["method"] == "GET" and given and self._is_right(scope, given):
            rest = urlencode(query, doseq=True)
            return self._logged_in(scope["path"] + (f"?{rest}" if rest else ""))
        if scope["method"] == "GET" and not scope["path"].startswith("/api/"):
            return RedirectResponse(LOGIN, 303)
        return _error(401, "a token is required", "send Authorization: Bearer TOKEN, or open /login", bearer=True)

    def _logged_in(self, where: str) -> Response:
        # A browser would take a path that begins with two slashes for another host.
        response = RedirectResponse("/" + where.lstrip("/"), 303)
        response.set_cookie(COOKIE, self.rules.cookie(), httponly=True, samesite="strict", path="/")
        return response


class _TooManyTriesError(Exception):
    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def _error(
    status: int, message: str, hint: str | None = None, *, bearer: bool = False, retry_after: int | None = None
) -> Response:
    headers = {"www-authenticate": "Bearer"} if bearer else {}
    if retry_after is not None:
        headers["retry-after"] = str(retry_after)
    return JSONResponse({"error": message, "hint": hint}, status, headers)


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send, scope: Scope) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            # Built files have a hash in their name; everything else may change and is private.
            kept = scope["path"].startswith(_STATIC) and message["status"] == 200
            headers["cache-control"] = "private, max-age=604800" if kept else "no-store"
        await send(message)

    return sending


def _bounded(receive: Receive, most: int = MOST_BODY) -> Receive:
    """A body without a declared length is cut off at the same size."""
    seen = 0

    async def receiving() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            return {"type": "http.disconnect"}
        return message

    return receiving


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    bounded = _bounded(receive)
    while more:
        message = await bounded()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body
