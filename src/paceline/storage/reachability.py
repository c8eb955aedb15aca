"""Whether a host answers, found out within seconds: before an upload that would retry for minutes."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from paceline.core.waiting import waiting_for
from paceline.storage.cloud_endpoints import unknown_region
from paceline.storage.credentials import find_bucket_access
from paceline.storage.store_errors import DeniedError, TransientError
from paceline.storage.url import StorageUrl, parse_url

PATIENCE = 8.0
"""Seconds in which a name has to resolve."""
_TIMEOUT = 5.0
_REFUSALS = 4.0
"""Seconds in which connections may be refused."""
_PAUSE = 0.5
_answered: set[str] = set()


class UnreachableError(TransientError):
    """The host does not resolve, does not take connections, or does not answer."""


def require_reachable(source: str | Path | StorageUrl) -> None:
    """Raises within seconds where a bucket's host does not answer; other sources are not looked at."""
    url = source if isinstance(source, StorageUrl) else parse_url(source)
    if url.scheme not in ("obs", "s3"):
        return
    access = find_bucket_access(url.scheme, url.host)
    parts = urlsplit(access.endpoint)
    endpoint = access.endpoint if access.path_style else f"{parts.scheme}://{url.host}.{parts.netloc}"
    require_answer(endpoint, what=f"{url.scheme}://{url.host}", ca_file=access.ca_file)


def require_answer(endpoint: str, *, what: str, ca_file: str | None = None) -> None:
    """Raises UnreachableError with host and remedy; an endpoint that answered once in this process is not asked again."""
    parts = urlsplit(endpoint)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if endpoint in _answered or _has_proxy(parts.scheme, host):
        return
    with waiting_for(f"{host}, for {what}"):
        _resolve(host, what)
        _connect(endpoint, f"{host}:{port}", what, ca_file)
    _answered.add(endpoint)


class HostLookup:
    """The addresses of a host, looked up in a thread: a name server that is down keeps the resolver busy for longer than
    a user waits."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._addresses: list[str] = []
        self._failure = ""
        self._done = threading.Event()
        threading.Thread(target=self._ask, daemon=True).start()
        self._until = time.monotonic() + PATIENCE

    def wait(self) -> None:
        """Until there is an answer, at most PATIENCE seconds after the beginning."""
        self._done.wait(max(0.0, self._until - time.monotonic()))

    @property
    def addresses(self) -> list[str]:
        return self._addresses

    @property
    def answered(self) -> bool:
        return self._done.is_set()

    @property
    def failure(self) -> str:
        """Why there is no address (yet); empty if there is one."""
        if self.answered:
            return self._failure
        return f"no answer of the name server within {PATIENCE:.0f} s"

    def _ask(self) -> None:
        try:
            found = socket.getaddrinfo(self.host, None, type=socket.SOCK_STREAM)
            self._addresses = [str(each[4][0]) for each in found]
        except (OSError, UnicodeError) as error:
            self._failure = (getattr(error, "strerror", None) or "not a host name").lower()
        self._done.set()


def _resolve(host: str, what: str) -> None:
    lookup = HostLookup(host)
    lookup.wait()
    if lookup.failure:
        raise UnreachableError(
            f"{what}: the host name {host} does not resolve ({lookup.failure})",
            hint=_lookup_hint(host, lookup.answered),
        )


def _lookup_hint(host: str, answered: bool) -> str:
    lines = "hosts of a private cloud belong in /etc/hosts: paceline doctor JOB.YAML prints the lines"
    if not answered:
        return f"check the network and the name servers in /etc/resolv.conf; {lines}"
    region = unknown_region(host)
    if region is None:
        return f"check the region or site it follows from; {lines}"
    meant = f", did you mean '{region.meant}'?" if region.meant else ""
    return f"unknown region '{region.name}'{meant} Regions are set by modelarts.region, OBS_REGION or the access file"


def _connect(endpoint: str, shown: str, what: str, ca_file: str | None) -> None:
    """A service that is just starting refuses connections for a moment."""
    until = time.monotonic() + _REFUSALS
    while True:
        try:
            _ask(endpoint, ca_file)
            return
        except ssl.SSLCertVerificationError as error:
            raise DeniedError(
                f"{what}: the certificate of {shown} is not trusted ({error.verify_message})",
                hint="set the right CA file (SSL_CERT_FILE or ca_file)",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() + _PAUSE > until or isinstance(error, TimeoutError):
                raise UnreachableError(
                    f"{what}: {shown} does not answer ({_reason(error)})",
                    hint="check network, firewall, region and endpoint; paceline doctor JOB.YAML checks them one by one",
                ) from None
            time.sleep(_PAUSE)


def _ask(endpoint: str, ca_file: str | None) -> None:
    """Any answer will do, also a refusal: credentials are checked by the requests themselves."""
    parts = urlsplit(endpoint)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca_file)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    finally:
        connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT:.0f} s"
    return (getattr(error, "strerror", None) or type(error).__name__).lower()


def _has_proxy(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
