"""Who to ask: hosts from the original account file, or named one by one."""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from paceline.errors import UsageError
from paceline.storage.location import Location, parse
from paceline.storage.secret import Secret
from paceline.storage.ssh_connection import Login

_log = logging.getLogger("paceline")
_NAME = re.compile(r"[\w.:%\[\]-]{1,255}")
"""Host names and addresses: it goes into host_ips_mapping.txt, one to a line."""


@dataclass(frozen=True)
class Host:
    """One machine, or one of several containers on it that are told apart by their ports."""

    name: str
    user: str | None = None
    port: int | None = None
    login: Login = field(default=Login(), repr=False)

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name

    def at(self, path: str) -> Location:
        return Location("ssh", self.name, path if path.startswith("/") else f"/~/{path}", self.user, self.port)


class _Account(msgspec.Struct, frozen=True):
    user: str = ""
    passwd: str = ""
    pd: str = ""
    """How ais-bench's node list spells it."""
    port: int | str | None = None


class _Accounts(msgspec.Struct, frozen=True):
    cluster: dict[str, _Account]


def read_accounts(path: Path) -> list[Host]:
    """{"cluster": {"10.0.0.1": {"user": "root", "passwd": "…"}}}: passwords stay in the file and in memory."""
    try:
        accounts = msgspec.json.decode(path.read_bytes(), type=_Accounts)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file", hint="the account file of the cluster's hosts") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="the account file of the cluster's hosts") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", hint='expected {"cluster": {"10.0.0.1": {"user": …}}}') from None
    hosts = [_host(path, name, account) for name, account in accounts.cluster.items()]
    if any(host.login.password for host in hosts) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        _log.warning("%s: others can read these passwords; chmod 600 it, or use keys", path)
    return hosts


def named_hosts(names: Sequence[str]) -> list[Host]:
    """user@host:port, one or several, with commas or without."""
    found = []
    for name in (each for text in names for each in text.split(",") if each.strip()):
        where = parse(f"ssh://{name.strip()}/")
        if not _NAME.fullmatch(where.host):
            raise UsageError(f"{where.host!r} is no host", hint="an address or a name, without spaces")
        found.append(Host(where.host, where.user, where.port))
    return found


def with_login(
    hosts: Sequence[Host], *, key: str | None, known_hosts: str | None, password: Secret | None
) -> list[Host]:
    """The same hosts with what the command line says about logging in."""
    return [
        replace(
            host,
            login=Login(
                password=password or host.login.password,
                key_file=key or host.login.key_file,
                known_hosts=known_hosts or host.login.known_hosts,
            ),
        )
        for host in hosts
    ]


def _host(path: Path, name: str, account: _Account) -> Host:
    password = account.passwd or account.pd
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: {name!r} is no host", hint="an address or a name, without spaces")
    port = str(account.port or "")
    if port and not (port.isdecimal() and 0 < int(port) < 65_536):
        # Not repeated: a line filled in wrongly may hold the password here.
        raise UsageError(f"{path}: {name}: its port is no port", hint="a number from 1 to 65535")
    return Host(name, account.user or None, int(port) if port else None, Login(Secret(password) if password else None))
