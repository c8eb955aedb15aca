"""Hosts to collect from and their logins: from msadvisor's account file, or from --host arguments."""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, Optional, Union

import msgspec

from paceline.core.errors import UsageError
from paceline.storage.secret import Secret
from paceline.storage.stores.ssh_connection import SshLogin
from paceline.storage.url import StorageUrl, parse_url

_log = logging.getLogger("paceline")
_HOST_NAME = re.compile(r"[\w.:%\[\]-]{1,255}")
"""Host names and addresses; without spaces, because host_ips_mapping.txt separates its columns by them."""


@dataclass(frozen=True)
class ClusterHost:
    """One machine, or one of several containers on it, distinguished by their SSH ports."""

    name: str
    user: str | None = None
    port: int | None = None
    login: SshLogin = field(default=SshLogin(), repr=False)

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name

    def url(self, path: str) -> StorageUrl:
        return StorageUrl("ssh", self.name, path if path.startswith("/") else f"/~/{path}", self.user, self.port)


class _Account(msgspec.Struct, frozen=True):
    user: str = ""
    passwd: str = ""
    pd: str = ""
    """The name of this field in ais-bench's node list."""
    port: Optional[Union[int, str]] = None


class _Accounts(msgspec.Struct, frozen=True):
    cluster: Dict[str, _Account]


def read_accounts(path: Path) -> list[ClusterHost]:
    """Read {"cluster": {"10.0.0.1": {"user": "root", "passwd": "…"}}}; passwords are kept in memory only."""
    try:
        accounts = msgspec.json.decode(path.read_bytes(), type=_Accounts)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", hint="pass the account file of the cluster's hosts") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="pass the account file of the cluster's hosts") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", hint='expected {"cluster": {"10.0.0.1": {"user": …}}}') from None
    hosts = [_host(path, name, account) for name, account in accounts.cluster.items()]
    if any(host.login.password for host in hosts) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        _log.warning("%s: passwords are readable by other users; run chmod 600 %s, or use SSH keys", path, path)
    return hosts


def parse_hosts(names: Sequence[str]) -> list[ClusterHost]:
    """Hosts from user@host:port; each text may name several, separated by commas."""
    hosts = []
    for name in (each for text in names for each in text.split(",") if each.strip()):
        url = parse_url(f"ssh://{name.strip()}/")
        if not _HOST_NAME.fullmatch(url.host):
            raise UsageError(f"{url.host!r} is not a host name", hint="use an address or a name, without spaces")
        hosts.append(ClusterHost(url.host, url.user, url.port))
    return hosts


def with_login(
    hosts: Sequence[ClusterHost], *, key: str | None, known_hosts: str | None, password: Secret | None
) -> list[ClusterHost]:
    """The same hosts with the login options of the command line."""
    return [
        replace(
            host,
            login=SshLogin(
                password=password or host.login.password,
                key_file=key or host.login.key_file,
                known_hosts=known_hosts or host.login.known_hosts,
            ),
        )
        for host in hosts
    ]


def _host(path: Path, name: str, account: _Account) -> ClusterHost:
    password = account.passwd or account.pd
    if not _HOST_NAME.fullmatch(name):
        raise UsageError(f"{path}: {name!r} is not a host name", hint="use an address or a name, without spaces")
    port = str(account.port or "")
    if port and not (port.isdecimal() and 0 < int(port) < 65_536):
        # The value is not quoted: it may be a password in the wrong field.
        raise UsageError(f"{path}: {name}: invalid port", hint="use a number from 1 to 65535")
    return ClusterHost(
        name, account.user or None, int(port) if port else None, SshLogin(Secret(password) if password else None)
    )
