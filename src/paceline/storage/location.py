"""Where a source or target lies: a path, s3://, obs:// or ssh://, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from paceline.errors import UsageError

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+]*):/{1,3}(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:(?P<user>[^@/]+)@)?(?P<host>\[[^\]]+\]|[^:/@]+)(?::(?P<port>\d{1,5}))?")
SCHEMES = ("file", "s3", "obs", "ssh")


@dataclass(frozen=True)
class Location:
    scheme: str
    host: str
    """Bucket or host name; empty for files."""
    path: str
    """Without a leading slash for buckets, absolute for hosts and files."""
    user: str | None = None
    port: int | None = None

    @property
    def url(self) -> str:
        if self.scheme == "file":
            return self.path
        who = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{who}{self.host}{port}/{self.path.lstrip('/')}".rstrip("/")

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2] or self.host

    @property
    def parent(self) -> Location:
        return replace(self, path=self.path.rstrip("/").rpartition("/")[0] or ("/" if self.scheme == "file" else ""))

    def __truediv__(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}".lstrip("/" if self.scheme in ("s3", "obs") else ""))


def is_remote(source: str | Path) -> bool:
    """Also when a Path has swallowed one of the slashes."""
    found = _URL.match(str(source))
    return bool(found and found["scheme"] in SCHEMES and found["scheme"] != "file")


def parse(source: str | Path) -> Location:
    """
    >>> parse("obs://bucket/a/b").url
    'obs://bucket/a/b'
    >>> parse(Path("s3://bucket/a")).url
    's3://bucket/a'
    """
    text = str(source)
    if not text.strip():
        # "$OUTPUT" of a shell where nobody set it: the working directory is not what was meant.
        raise UsageError("an empty name is no place", hint="is a variable of your script unset? . is this directory")
    found = _URL.match(text)
    if not found or (len(found["scheme"]) == 1):
        return Location("file", "", str(Path(text).absolute()))
    scheme, rest = found["scheme"], found["rest"]
    if scheme not in SCHEMES:
        raise UsageError(f"{scheme}:// is not a place Paceline knows", hint=f"known: {', '.join(SCHEMES)}")
    if scheme == "file":
        return Location("file", "", "/" + rest)
    if scheme == "ssh":
        return _ssh(rest)
    bucket, _, path = rest.partition("/")
    if not bucket:
        raise UsageError(f"{scheme}://: names no bucket", hint=f"example: {scheme}://bucket/profiler")
    if "@" in bucket:
        raise UsageError(f"{scheme}://: keys do not belong into a URL", hint="see docs/storage.md, Access")
    return Location(scheme, bucket, path.strip("/"))


def _ssh(rest: str) -> Location:
    where, _, path = rest.partition("/")
    found = _HOST.fullmatch(where)
    if not found:
        raise UsageError("ssh://: names no host", hint="example: ssh://user@host/path")
    user = unquote(found["user"]) if found["user"] else None
    if user and ":" in user:
        # Others on this machine see our command line. Nothing is repeated: "@" or "/" in it would make the rest the host.
        raise UsageError(
            "ssh://: a password does not belong into a URL",
            hint="use a key, the agent, or an account file (paceline collect --help)",
        )
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65_536:
        raise UsageError(f"ssh://{found['host']}: {port} is no port", hint="a number from 1 to 65535")
    return Location("ssh", found["host"].strip("[]"), "/" + path.rstrip("/"), user, port)
