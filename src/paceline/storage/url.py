"""URLs of stores: a path, s3://bucket/prefix, obs://bucket/prefix, ssh://user@host:port/path, and those of plug-ins."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from paceline.core.errors import UsageError
from paceline.storage.schemes import is_known_scheme, known_schemes

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+]*):/{1,3}(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:(?P<user>[^@/]+)@)?(?P<host>\[[^\]]+\]|[^:/@]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True)
class StorageUrl:
    scheme: str
    host: str
    """Bucket or host name; empty for files."""
    path: str
    """Absolute for files and ssh://, without a leading slash for buckets and plug-ins."""
    user: str | None = None
    port: int | None = None

    @property
    def text(self) -> str:
        if self.scheme == "file":
            return self.path
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{user}{self.host}{port}/{self.path.lstrip('/')}".rstrip("/")

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2] or self.host

    @property
    def parent(self) -> StorageUrl:
        return replace(self, path=self.path.rstrip("/").rpartition("/")[0] or ("/" if self.scheme == "file" else ""))

    def __truediv__(self, name: str) -> StorageUrl:
        return replace(
            self, path=f"{self.path.rstrip('/')}/{name}".lstrip("" if self.scheme in ("file", "ssh") else "/")
        )


def is_remote(source: str | Path) -> bool:
    """Whether a source is a URL of another place; also for a Path, which drops one of the two slashes."""
    match = _URL.match(str(source))
    return bool(match and match["scheme"] != "file" and is_known_scheme(match["scheme"]))


def parse_url(source: str | Path) -> StorageUrl:
    """
    >>> parse_url("obs://bucket/a/b").text
    'obs://bucket/a/b'
    >>> parse_url(Path("s3://bucket/a")).text
    's3://bucket/a'
    """
    text = str(source)
    if not text.strip():
        # "$OUTPUT" in a shell where it is not set: the working directory is not what was meant.
        raise UsageError("the path is empty", hint="is a variable of your script unset? Use . for this directory")
    match = _URL.match(text)
    if not match or (len(match["scheme"]) == 1):  # one letter: a Windows drive
        return StorageUrl("file", "", str(Path(text).absolute()))
    scheme, rest = match["scheme"], match["rest"]
    if not is_known_scheme(scheme):
        raise UsageError(f"unknown URL scheme '{scheme}://' (known: {', '.join(known_schemes())})")
    if scheme == "file":
        return StorageUrl("file", "", "/" + rest)
    if scheme in ("s3", "obs"):
        return _parse_bucket(scheme, rest)
    url = _parse_host(scheme, rest)
    return replace(url, path=f"/{url.path}") if scheme == "ssh" else url


def _parse_bucket(scheme: str, rest: str) -> StorageUrl:
    bucket, _, path = rest.partition("/")
    if not bucket:
        raise UsageError(f"{scheme}://: no bucket given", hint=f"example: {scheme}://bucket/profiler")
    if "@" in bucket:
        raise UsageError(
            f"{scheme}://: credentials are not accepted in a URL", hint="set them as docs/storage.md, Access, describes"
        )
    return StorageUrl(scheme, bucket, path.strip("/"))


def _parse_host(scheme: str, rest: str) -> StorageUrl:
    authority, _, path = rest.partition("/")
    match = _HOST.fullmatch(authority)
    if not match:
        raise UsageError(f"{scheme}://: no host given", hint=f"example: {scheme}://user@host/path")
    user = unquote(match["user"]) if match["user"] else None
    if user and ":" in user:
        # The command line is visible to other users. The URL is not quoted: with "@" or "/" in the password, the rest
        # of the password would be taken for the host.
        raise UsageError(
            f"{scheme}://: passwords are not accepted in a URL",
            hint="use a key, the agent, or an account file (paceline collect --help)" if scheme == "ssh" else None,
        )
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65_536:
        raise UsageError(f"{scheme}://{match['host']}: invalid port {port}", hint="use a number from 1 to 65535")
    return StorageUrl(scheme, match["host"].strip("[]"), path.rstrip("/"), user, port)
