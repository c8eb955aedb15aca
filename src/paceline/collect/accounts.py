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
from paceline.rank_tables import generate, write
from paceline.storage.location import Location, parse
from paceline.storage.secret import Secret
from paceline.storage.ssh_connection import Login

_log = logging.getLogger("paceline")
_NAME = re.compile(r"[\w.:%\[\]-]{1,255}")
"""Host names and addresses: it goes into host_ips_mapping.txt, one to a line."""


@dataclass(frozen=True)
class Host:
    """One machine; `number` is the name its data goes under, so that addresses need not be shown."""

    name: str
    number: int
    user: str | None = None
    port: int | None = None
    login: Login = field(default=Login(), repr=False)

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
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}", hint='expected {"cluster": {"10.0.0.1": {"user": …}}}') from None
    hosts = [_host(path, name, number, account) for number, (name, account) in enumerate(accounts.cluster.items(), 1)]
    if any(host.login.password for host in hosts) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        _log.warning("%s: others can read these passwords; chmod 600 it, or use keys", path)
    return hosts


def named_hosts(names: Sequence[str]) -> list[Host]:
    """user@host:port, one or several, with commas or without."""
    found = []
    for number, name in enumerate((each for text in names for each in text.split(",") if each.strip()), 1):
        where = parse(f"ssh://{name.strip()}/")
        found.append(Host(where.host, number, where.user, where.port))
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


def _host(path: Path, name: str, number: int, account: _Account) -> Host:
    password = account.passwd or account.pd
    if not _NAME.fullmatch(name):
        raise UsageError(f"{path}: {name!r} is no host", hint="an address or a name, without spaces")
    port = str(account.port or "")
    if port and not (port.isdecimal() and 0 < int(port) < 65_536):
        # Not repeated: a line filled in wrongly may hold the password here.
        raise UsageError(f"{path}: {name}: its port is no port", hint="a number from 1 to 65535")
    return Host(
        name, number, account.user or None, int(port) if port else None, Login(Secret(password) if password else None)
    )


def mapping_text(hosts: Sequence[Host]) -> str:
    """host_ips_mapping.txt: one "<host> <directory>" per line."""
    return "".join(f"{host.name} {host.number}\n" for host in hosts)


def rank_table_text(devices: dict[str, list[int]]) -> str:
    """A rank table (1.0) for hosts and devices as found, ranks counted through."""
    return write(generate((name, sorted(numbers)) for name, numbers in devices.items()))
