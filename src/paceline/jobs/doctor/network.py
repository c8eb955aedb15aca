"""Names, connections and clocks: what a private cloud's hosts file lacks, what a firewall stops, what breaks signatures."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from paceline.jobs.doctor.check import Check, Text, bad, good, warning

_TIMEOUT = 5.0
_REFUSED = 15 * 60
"""Signatures older (or newer) than this many seconds are refused."""
_NOTICED = 60


def resolve(hosts: Mapping[str, str]) -> Iterator[Check]:
    """host → what it is for; all that do not resolve are told together, as the lines /etc/hosts needs."""
    found = {host: _addresses(host) for host in hosts}
    lost = [host for host, addresses in found.items() if not addresses]
    for host, addresses in found.items():
        if addresses:
            yield good("name", f"{host} is {addresses[0]}", f"{host} 解析为 {addresses[0]}")
    if lost:
        lines = "\n".join(f"{_neighbour(host, found)}  {host}" for host in lost)
        yield bad(
            "name",
            Text(f"cannot be resolved: {', '.join(lost)}", f"无法解析：{', '.join(lost)}"),
            Text(f"ask your cloud's operator for the addresses and add to /etc/hosts:\n{lines}",
                 f"请向云平台管理员询问地址，并写入 /etc/hosts：\n{lines}"),
        )  # fmt: skip


def reach(url: str) -> Iterator[Check]:
    """One request: does anybody answer, and what time is it there?"""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        before = time.time()
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        yield good("endpoint", f"{url} answers", f"{url} 可以访问")
        yield from clock(url, answer.getheader("Date"), (before + time.time()) / 2)
    except ssl.SSLCertVerificationError as error:
        yield bad(
            "endpoint", Text(f"{url}: {error.verify_message}", f"{url}：证书校验失败（{error.verify_message}）"),
            Text("set SSL_CERT_FILE to the private cloud's CA certificate", "请用 SSL_CERT_FILE 指定私有云的 CA 证书"),
        )  # fmt: skip
    except (OSError, http.client.HTTPException) as error:
        reason = f"{type(error).__name__}: {error}"
        yield bad(
            "endpoint", Text(f"{url} does not answer: {reason}", f"{url} 无法访问：{reason}"),
            Text("check the address, proxies (http_proxy, no_proxy) and the firewall",
                 "请检查地址、代理（http_proxy、no_proxy）和防火墙"),
        )  # fmt: skip
    finally:
        connection.close()


def clock(url: str, date: str | None, now: float) -> Iterator[Check]:
    """Signatures carry our time: a clock that is wrong makes every request look stale."""
    if not date:
        return
    try:
        apart = now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(apart) <= _NOTICED:
        yield good("clock", f"this clock agrees with {url}", f"本机时钟与 {url} 一致")
        return
    seconds = f"{abs(apart):,.0f}"
    way = ("ahead of", "快") if apart > 0 else ("behind", "慢")
    found = Text(f"this clock is {seconds} s {way[0]} {url}", f"本机时钟比 {url} {way[1]} {seconds} 秒")
    advice = Text("set it: timedatectl set-ntp true", "请校准时钟：timedatectl set-ntp true")
    yield bad("clock", found, advice) if abs(apart) > _REFUSED else warning("clock", found, advice)


def _addresses(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _neighbour(host: str, found: Mapping[str, list[str]]) -> str:
    """A bucket's name stands for the same service as the name behind it; others we cannot know."""
    behind = host.partition(".")[2]
    return found[behind][0] if found.get(behind) else "<address>"
