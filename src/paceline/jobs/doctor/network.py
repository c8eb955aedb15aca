"""Checks of host names, connections and clocks: /etc/hosts of private clouds, firewalls, request signatures."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from paceline.core.waiting import waiting_for
from paceline.jobs.doctor.check import Check, bad, good, warning
from paceline.storage.cloud_endpoints import unknown_region
from paceline.storage.reachability import HostLookup

_TIMEOUT = 5.0
_REFUSED = 15 * 60
"""Signatures older (or newer) than this many seconds are refused."""
_NOTICED = 60


def resolve(hosts: Mapping[str, str], optional: frozenset[str] = frozenset()) -> Iterator[Check]:
    """host → what it is for; those that do not resolve are listed together, as lines for /etc/hosts.

    Without `optional` ones the job can start: only the job's nodes, or other tools, ask them.
    """
    lookups = [HostLookup(host) for host in hosts]
    with waiting_for(f"the name server, for {', '.join(hosts)}"):
        for lookup in lookups:
            lookup.wait()
    found = {lookup.host: lookup.addresses for lookup in lookups}
    lost = [host for host, addresses in found.items() if not addresses]
    silent = any(not lookup.answered for lookup in lookups)
    for host, addresses in found.items():
        if addresses:
            yield good("name", "name", host=host, address=addresses[0])
    if lost:
        lines = "\n".join(f"{_likely_address(host, found)}  {host}" for host in lost)
        make_check = bad if set(lost) - optional else warning
        region = next((region for host in lost if (region := unknown_region(host))), None)
        key = "name_server_silent" if silent else "region_unknown" if region else "name_unknown"
        values = {"region": region.name, "meant": region.meant or "–"} if region else {}
        yield make_check("name", key, hosts=", ".join(lost), lines=lines, **values)


def reach(url: str) -> Iterator[Check]:
    """One request: whether the endpoint answers, and how its clock differs from ours."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        before = time.time()
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        yield good("endpoint", "endpoint", url=url)
        yield from clock(url, answer.getheader("Date"), (before + time.time()) / 2)
    except ssl.SSLCertVerificationError as error:
        yield bad("endpoint", "certificate", url=url, reason=error.verify_message)
    except (OSError, http.client.HTTPException) as error:
        yield bad("endpoint", "endpoint_unreachable", url=url, reason=f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def clock(url: str, date: str | None, now: float) -> Iterator[Check]:
    """Signatures carry our time: with a wrong clock every request is refused as stale."""
    if not date:
        return
    try:
        ahead = now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(ahead) <= _NOTICED:
        yield good("clock", "clock", url=url)
        return
    make_check = bad if abs(ahead) > _REFUSED else warning
    yield make_check("clock", "clock_ahead" if ahead > 0 else "clock_behind", url=url, seconds=abs(ahead))


def _likely_address(host: str, found: Mapping[str, list[str]]) -> str:
    """A bucket's host name has the address of the endpoint behind it; other addresses are unknown."""
    behind = host.partition(".")[2]
    return found[behind][0] if found.get(behind) else "<address>"
