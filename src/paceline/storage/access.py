"""Keys for buckets: from the environment, ~/.config/paceline/access.json, or the original obs_access_config.json.

Files are read again when they change, so that whoever renews temporary keys only has to write the file; on an ECS they
may come from the machine itself.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from paceline.storage.secret import Secret
from paceline.storage.store import DeniedError

_log = logging.getLogger("paceline")
_ORIGINAL = Path("obs_access_config.json")
"""Where msadvisor looks for it: the working directory. Usually readable by all, so only warned about."""
_SIGNATURES = ("v4", "v2", "obs")
"""Of S3 (obstore), and what Huawei's SDK knows beside it."""
_CLOUDS = (".myhuaweicloud.com", ".myhuaweicloud.eu", ".amazonaws.com", ".amazonaws.com.cn")
"""Where buckets have host names of their own; elsewhere the bucket is part of the path."""


@dataclass(frozen=True)
class Access:
    """How to reach a bucket; compares by value, so that new keys are noticed."""

    endpoint: str
    region: str
    key: Secret
    secret: Secret
    token: Secret | None = None
    signature: str = "v4"
    path_style: bool = True
    ca_file: str | None = None
    from_file: bool = False
    """Then somebody may renew them while we run."""

    @property
    def secure(self) -> bool:
        return self.endpoint.startswith("https://")


class AccessFields(msgspec.Struct, frozen=True):
    """What the original calls access_config, and what it lacks: a token, a signature, a CA file."""

    access_key: str = ""
    secret_access_key: str = ""
    security_token: str = ""
    server: str = ""
    region_name: str = ""
    project_id: str = ""
    iam_endpoint: str = ""
    obs_endpoint: str = ""
    modelarts_endpoint: str = ""
    signature: str = ""
    path_style: bool | None = None
    ca_file: str = ""
    credentials: str = ""
    """"ECS": the agency of the machine we run on has the keys."""

    def __repr__(self) -> str:
        return "AccessFields(***)"


class _File(msgspec.Struct, frozen=True):
    access_config: AccessFields = AccessFields()
    buckets: dict[str, AccessFields] = {}


_NAMES: dict[str, tuple[tuple[str, str, str, str, str], ...]] = {
    "obs": (
        ("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN", "OBS_ENDPOINT", "OBS_REGION"),
        ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN", "OBS_ENDPOINT", "OBS_REGION"),
        ("S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_SECURITY_TOKEN", "S3_ENDPOINT", "S3_REGION"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"),
    ),
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"),
        ("S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_SECURITY_TOKEN", "S3_ENDPOINT", "S3_REGION"),
        ("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN", "OBS_ENDPOINT", "OBS_REGION"),
    ),
}
"""Environment variables by scheme, the scheme's own first: key, secret, token, endpoint, region."""


_CLOUD_NAMES = (
    ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
    ("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN"),
)


def find_access(scheme: str, bucket: str) -> Access:
    """Environment first, then files; said clearly when there is nothing."""
    fields = _from_environment(scheme)
    stored = None if fields else _from_files(bucket)
    found = fields or stored
    if found is None:
        _refuse_empty(bucket)
        raise DeniedError(
            f"{scheme}://{bucket}: no keys found",
            hint=f"set {' and '.join(_NAMES[scheme][0][:2])}, or write {home_file()} (docs/storage.md, Access)",
        )
    return _access(scheme, found, fields is None, os.environ.get("SSL_CERT_FILE"))


def _refuse_empty(bucket: str) -> None:
    """Who names a file wants to hear about that one."""
    if named := os.environ.get("PACELINE_ACCESS"):
        problem = f"no keys for {bucket} in it" if Path(named).is_file() else "no such file"
        raise DeniedError(f"{named} (PACELINE_ACCESS): {problem}", hint='expected {"access_config": {"access_key": …}}')


@dataclass(frozen=True)
class CloudAccess:
    """Who we are to the cloud's own services (ModelArts), and where those are, as far as it is written down."""

    key: Secret
    secret: Secret
    token: Secret | None
    project_id: str
    region: str
    modelarts_endpoint: str
    source: str
    """Where the keys come from, for those who have to renew them."""


def find_cloud_access() -> CloudAccess:
    """The same keys in the same order as for buckets; the file may say project and endpoint even if keys do not."""
    stored, named = _from_files(""), next((path for path in _files() if path.is_file()), home_file())
    given = next((names for names in _CLOUD_NAMES if os.environ.get(names[0]) and os.environ.get(names[1])), None)
    if given is None and stored is None:
        raise DeniedError(
            "no keys for the cloud found",
            hint=f"set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or write {home_file()} (docs/storage.md, Access)",
        )
    rest = stored or AccessFields()
    if given is not None:
        key, secret, token = (os.environ.get(name, "") for name in given)
    else:
        key, secret, token = rest.access_key, rest.secret_access_key, rest.security_token
    return CloudAccess(
        key=Secret(key),
        secret=Secret(secret),
        token=Secret(token) if token else None,
        project_id=os.environ.get("HUAWEICLOUD_SDK_PROJECT_ID") or rest.project_id,
        region=os.environ.get("OBS_REGION") or rest.region_name,
        modelarts_endpoint=rest.modelarts_endpoint,
        source=given[0] if given else str(named),
    )


def _from_environment(scheme: str) -> AccessFields | None:
    environment = os.environ
    for key, secret, token, endpoint, region in _NAMES[scheme]:
        if environment.get(key) and environment.get(secret):
            return AccessFields(
                access_key=environment[key], secret_access_key=environment[secret],
                security_token=environment.get(token, ""), obs_endpoint=environment.get(endpoint, ""),
                region_name=environment.get(region, ""), signature=environment.get("PACELINE_SIGNATURE", ""),
                ca_file=environment.get("SSL_CERT_FILE", ""),
            )  # fmt: skip
    return None


def _from_files(bucket: str) -> AccessFields | None:
    for path in _files():
        if path.is_file():
            content = _read(path)
            fields = content.buckets.get(bucket, content.access_config)
            if fields.credentials:
                return _from_machine(path, fields)
            if fields.access_key and fields.secret_access_key:
                return fields
    return None


def _from_machine(path: Path, fields: AccessFields) -> AccessFields:
    """Temporary keys of the machine's agency; Huawei's SDK asks for them, keeps them, and renews them before they end."""
    if fields.credentials != "ECS":
        # The word is not repeated: it may be a key in the wrong place.
        raise DeniedError(f"{path}: these credentials are not known", hint='known: "ECS"')
    from obs.loadtoken import ECS, NoneTokenException

    try:
        keys = ECS.search()
    except NoneTokenException:
        raise DeniedError(
            f"{path}: this machine gives no temporary keys", hint="is it an ECS with an agency for OBS?"
        ) from None
    return msgspec.structs.replace(
        fields,
        access_key=keys["accessKey"],
        secret_access_key=keys["secretKey"],
        security_token=keys["securityToken"],
    )


def _files() -> list[Path]:
    named = os.environ.get("PACELINE_ACCESS")
    return [Path(named)] if named else [home_file(), _ORIGINAL]


def home_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "paceline" / "access.json"


_cache: dict[Path, tuple[tuple[int, int], _File]] = {}
_lock = threading.Lock()


def _read(path: Path) -> _File:
    info = path.stat()
    stamp = (info.st_mtime_ns, info.st_ino)
    with _lock:
        if path not in _cache or _cache[path][0] != stamp:
            _check_mode(path, info.st_mode)
            _cache[path] = (stamp, _decode(path))
        return _cache[path][1]


def _check_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(mode) & 0o077:
        if path != _ORIGINAL:
            raise DeniedError(f"{path}: others can read these keys", hint=f"chmod 600 {path}")
        _log.warning("%s: others can read these keys; chmod 600 it", path)


def _decode(path: Path) -> _File:
    try:
        # Editors on Windows begin their files with a mark.
        return msgspec.json.decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), type=_File)
    except OSError as error:
        raise DeniedError(f"{path}: {error.strerror}", hint="it has to be readable for you") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The decoder names the place, never the value.
        raise DeniedError(f"{path}: {error}", hint='expected {"access_config": {"access_key": …}}') from None


@lru_cache(maxsize=64)  # asked before every request
def _access(scheme: str, fields: AccessFields, from_file: bool, ca_file: str | None) -> Access:
    region = fields.region_name or "us-east-1"
    endpoint = _endpoint(scheme, fields, region)
    host = _host(endpoint)
    if fields.signature not in ("", *_SIGNATURES):
        raise DeniedError(f"{scheme}://: the signature asked for is not known", hint=f"known: {', '.join(_SIGNATURES)}")
    path_style = fields.path_style
    if path_style is None:
        path_style = _is_address(host) or not (host.endswith(_CLOUDS) or fields.signature == "obs")
    return Access(
        endpoint=endpoint,
        region=region,
        key=Secret(fields.access_key),
        secret=Secret(fields.secret_access_key),
        token=Secret(fields.security_token) if fields.security_token else None,
        signature=fields.signature or "v4",
        path_style=path_style,
        ca_file=fields.ca_file or ca_file or None,
        from_file=from_file,
    )


def _endpoint(scheme: str, fields: AccessFields, region: str) -> str:
    given = (fields.obs_endpoint or fields.server).rstrip("/")
    if given:
        return given if "://" in given else f"https://{given}"
    cloud = f"s3.{region}.amazonaws.com" if scheme == "s3" else f"obs.{region}.myhuaweicloud.com"
    return f"https://{cloud}"


def _host(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        if parts.hostname and parts.scheme in ("http", "https") and parts.port != 0:
            return parts.hostname
    except ValueError:
        pass
    # Not repeated: a line filled in wrongly may hold a key.
    raise DeniedError("the endpoint is no address", hint="example: https://obs.cn-north-4.myhuaweicloud.com")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
