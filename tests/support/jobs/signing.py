"""The other side of SDK-HMAC-SHA256: works out anew what a request should have been signed with."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, unquote, urlsplit

_AUTHORIZATION = re.compile(
    r"SDK-HMAC-SHA256 Access=(?P<key>[^,]+), SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_MUST_BE_SIGNED = {"host", "x-sdk-date", "x-project-id"}


def refusal(
    method: str, target: str, headers: Mapping[str, str], body: bytes, keys: Mapping[str, str], tokens: set[str] | None
) -> str | None:
    """Why this request is not taken; None when its signature, its time and its token are right."""
    found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if not found:
        return "no SDK-HMAC-SHA256 authorization"
    if found["key"] not in keys:
        return "unknown access key"
    names = found["headers"].split(";")
    if not set(names) >= _MUST_BE_SIGNED or names != sorted(names):
        return "headers that have to be signed are not"
    sent = datetime.strptime(headers["x-sdk-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs(datetime.now(UTC) - sent) > timedelta(minutes=15):
        return "the request has expired"
    if signature(method, target, headers, body, names, keys[found["key"]]) != found["signature"]:
        return "signature mismatch"
    if tokens is not None and headers.get("x-security-token") not in tokens:
        return "the security token has expired"
    return None


def signature(method: str, target: str, headers: Mapping[str, str], body: bytes, names: list[str], secret: str) -> str:
    parts = urlsplit(target)
    path = "/".join(quote(unquote(segment), safe="~") for segment in parts.path.split("/"))
    query = "&".join(
        f"{quote(name, safe='~')}={quote(value, safe='~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    signed = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    canonical = "\n".join(
        [
            method,
            path if path.endswith("/") else f"{path}/",
            query,
            signed,
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    to_sign = f"SDK-HMAC-SHA256\n{headers['x-sdk-date']}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest()
