"""Credentials for buckets and ModelArts: environment, ~/.config/paceline/access.json, msadvisor's obs_access_config.json.

Files are read again when they change: a process that renews temporary credentials only has to write the file. On an
ECS the credentials can come from the metadata service of the machine.
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
from typing import Dict, Optional
from urllib.parse import urlsplit

import msgspec

from paceline.core.json_comments import plain_json
from paceline.storage.cloud_endpoints import (
    CloudPlace,
    CloudService,
    bucket_place,
    find_endpoint_of,
    region_of,
    with_scheme,
)
from paceline.storage.secret import Secret
from paceline.storage.store_errors import DeniedError

_log = logging.getLogger("paceline")
_MSADVISOR_FILE = Path("obs_access_config.json")
"""In the working directory, as msadvisor expects it. Usually world-readable, so that is only a warning."""
_SIGNATURES = ("v4", "v2", "obs")
"""v4 is S3's (obstore); Huawei's SDK supports the others too."""
_VIRTUAL_HOST_DOMAINS = (".myhuaweicloud.com", ".myhuaweicloud.eu", ".amazonaws.com", ".amazonaws.com.cn")
"""Domains where a bucket has its own host name; elsewhere the bucket is part of the path."""


@dataclass(frozen=True)
class BucketAccess:
    """Endpoint and credentials of a bucket; compared by value, so that renewed credentials are noticed."""

    endpoint: str
    region: str
    key: Secret
    secret: Secret
    token: Secret | None = None
    signature: str = "v4"
    path_style: bool = True
    ca_file: str | None = None
    from_file: bool = False
    """Credentials from a file may be renewed while we run."""

    @property
    def secure(self) -> bool:
        return self.endpoint.startswith("https://")


class AccessFields(msgspec.Struct, frozen=True):
    """The fields of msadvisor's access_config, and ours: token, signature, path style, CA file, source of credentials."""

    access_key: str = ""
    secret_access_key: str = ""
    security_token: str = ""
    server: str = ""
    region_name: str = ""
    project_id: str = ""
    iam_endpoint: str = ""
    obs_endpoint: str = ""
    modelarts_endpoint: str = ""
    swr_endpoint: str = ""
    site: str = ""
    """Domain of a private site."""
    signature: str = ""
    path_style: Optional[bool] = None
    ca_file: str = ""
    credentials: str = ""
    """"ECS": use the temporary credentials of this machine's agency."""

    def __repr__(self) -> str:
        return "AccessFields(***)"


class _AccessFile(msgspec.Struct, frozen=True):
    access_config: AccessFields = AccessFields()
    buckets: Dict[str, AccessFields] = {}


_VARIABLES: dict[str, tuple[tuple[str, str, str, str, str], ...]] = {
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


_CLOUD_VARIABLES = (
    ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
    ("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN"),
)


def find_bucket_access(scheme: str, bucket: str) -> BucketAccess:
    """From the environment first, then from files; DeniedError when neither has credentials."""
    from_environment = _from_environment(scheme)
    fields = from_environment or _from_files(bucket)
    if fields is None:
        raise _no_credentials(scheme, bucket)
    located = _located(scheme, bucket, fields, from_environment)
    return _bucket_access(scheme, located, from_environment is None, os.environ.get("SSL_CERT_FILE"))


def _located(scheme: str, bucket: str, fields: AccessFields, from_environment: AccessFields | None) -> AccessFields:
    """The credentials with the bucket's endpoint and region, from whichever source names them."""
    described = bucket_place(bucket)
    if scheme == "s3" and described == CloudPlace():
        return fields
    environment = _place(from_environment) if from_environment else _environment_place()
    own = CloudPlace() if from_environment else _own_place(bucket)
    named = environment.named(CloudService.obs) if from_environment else own.endpoint(CloudService.obs)
    stored = CloudPlace() if named else _stored_place()
    endpoint = named or find_endpoint_of(CloudService.obs, described=described, environment=environment, stored=stored)
    region = region_of(endpoint) or own.region or described.region or environment.region or stored.region
    return msgspec.structs.replace(fields, obs_endpoint=endpoint, server="", region_name=region)


def _own_place(bucket: str) -> CloudPlace:
    """What an access file says of this very bucket."""
    file = next((path for path in _files() if path.is_file()), None)
    return _place(_read_file(file).buckets.get(bucket, AccessFields())) if file else CloudPlace()


def _stored_place() -> CloudPlace:
    """Of the first access file; also for credentials of the environment."""
    file = next((path for path in _files() if path.is_file()), None)
    return _place(_read_file(file).access_config) if file else CloudPlace()


def _environment_place() -> CloudPlace:
    return CloudPlace(
        region=os.environ.get("OBS_REGION", ""),
        endpoints=((CloudService.obs, os.environ.get("OBS_ENDPOINT", "")),),
    )


def _place(fields: AccessFields) -> CloudPlace:
    return CloudPlace(
        region=fields.region_name,
        site=fields.site,
        endpoints=(
            (CloudService.obs, fields.obs_endpoint or fields.server),
            (CloudService.modelarts, fields.modelarts_endpoint),
            (CloudService.iam, fields.iam_endpoint),
            (CloudService.swr, fields.swr_endpoint),
        ),
    )


def find_cloud_endpoint(service: CloudService, described: CloudPlace) -> str:
    """Of a service, for a job with this description; empty where nothing says where the cloud is."""
    return find_endpoint_of(service, described=described, environment=_environment_place(), stored=_stored_place())


def _no_credentials(scheme: str, bucket: str) -> DeniedError:
    if configured := os.environ.get("PACELINE_ACCESS"):
        problem = f"no credentials for {bucket}" if Path(configured).is_file() else "no such file"
        return DeniedError(
            f"{configured} (PACELINE_ACCESS): {problem}", hint='expected {"access_config": {"access_key": …}}'
        )
    variables = " and ".join(_VARIABLES[scheme][0][:2])
    return DeniedError(
        f"{scheme}://{bucket}: no credentials found",
        hint=f"set {variables}, or write {user_access_file()} (docs/storage.md, Access)",
    )


@dataclass(frozen=True)
class CloudAccess:
    """Credentials for the cloud's services (ModelArts); empty strings where nothing is configured."""

    key: Secret
    secret: Secret
    token: Secret | None
    project_id: str
    ca_file: str
    source: str
    """Where the credentials come from, so that messages can say what to renew."""


def find_cloud_access() -> CloudAccess:
    """The same sources in the same order as for buckets; the project may come from the file in any case."""
    stored, file = _from_files(""), next((path for path in _files() if path.is_file()), user_access_file())
    variables = next(
        (names for names in _CLOUD_VARIABLES if os.environ.get(names[0]) and os.environ.get(names[1])), None
    )
    if variables is None and stored is None:
        raise DeniedError(
            "no cloud credentials found",
            hint=f"set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or write {user_access_file()} (docs/storage.md, Access)",
        )
    fields = stored or AccessFields()
    if variables is not None:
        key, secret, token = (os.environ.get(name, "") for name in variables)
    else:
        key, secret, token = fields.access_key, fields.secret_access_key, fields.security_token
    return CloudAccess(
        key=Secret(key),
        secret=Secret(secret),
        token=Secret(token) if token else None,
        project_id=os.environ.get("HUAWEICLOUD_SDK_PROJECT_ID") or fields.project_id,
        ca_file=fields.ca_file or os.environ.get("SSL_CERT_FILE", ""),
        source=variables[0] if variables else str(file),
    )


def _from_environment(scheme: str) -> AccessFields | None:
    environment = os.environ
    for key, secret, token, endpoint, region in _VARIABLES[scheme]:
        if environment.get(key) and environment.get(secret):
            return AccessFields(
                access_key=environment[key],
                secret_access_key=environment[secret],
                security_token=environment.get(token, ""),
                obs_endpoint=environment.get(endpoint, ""),
                region_name=environment.get(region, ""),
                signature=environment.get("PACELINE_SIGNATURE", ""),
                ca_file=environment.get("SSL_CERT_FILE", ""),
            )
    return None


def _from_files(bucket: str) -> AccessFields | None:
    for path in _files():
        if path.is_file():
            content = _read_file(path)
            fields = content.buckets.get(bucket, content.access_config)
            if fields.credentials:
                return _from_metadata_service(path, fields)
            if fields.access_key and fields.secret_access_key:
                return fields
    return None


def _from_metadata_service(path: Path, fields: AccessFields) -> AccessFields:
    """Temporary credentials of the machine's agency; Huawei's SDK requests, caches and renews them."""
    if fields.credentials != "ECS":
        # The value is not quoted: it may be a secret in the wrong field.
        raise DeniedError(f"{path}: unknown value of 'credentials'", hint='known: "ECS"')
    from obs.loadtoken import ECS, NoneTokenException

    try:
        keys = ECS.search()
    except NoneTokenException:
        raise DeniedError(
            f"{path}: no temporary credentials available on this machine",
            hint='"credentials": "ECS" needs an ECS with an agency for OBS',
        ) from None
    return msgspec.structs.replace(
        fields,
        access_key=keys["accessKey"],
        secret_access_key=keys["secretKey"],
        security_token=keys["securityToken"],
    )


def _files() -> list[Path]:
    configured = os.environ.get("PACELINE_ACCESS")
    return [Path(configured)] if configured else [user_access_file(), _MSADVISOR_FILE]


def user_access_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "paceline" / "access.json"


_cache: dict[Path, tuple[tuple[int, int], _AccessFile]] = {}
_lock = threading.Lock()


def _read_file(path: Path) -> _AccessFile:
    info = path.stat()
    stamp = (info.st_mtime_ns, info.st_ino)
    with _lock:
        if path not in _cache or _cache[path][0] != stamp:
            _check_mode(path, info.st_mode)
            _cache[path] = (stamp, _decode(path))
        return _cache[path][1]


def _check_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(mode) & 0o077:
        if path != _MSADVISOR_FILE:
            raise DeniedError(f"{path}: credentials are readable by other users", hint=f"chmod 600 {path}")
        _log.warning("%s: credentials are readable by other users; run chmod 600 %s", path, path)


def _decode(path: Path) -> _AccessFile:
    try:
        # Editors on Windows write a byte order mark; msadvisor's guide prints the file with comments.
        return msgspec.json.decode(plain_json(path.read_text("utf-8-sig")), type=_AccessFile)
    except OSError as error:
        raise DeniedError(f"{path}: {error.strerror}", hint="make it readable for your user") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The decoder's message holds the position, never the value.
        raise DeniedError(f"{path}: {error}", hint='expected {"access_config": {"access_key": …}}') from None


@lru_cache(maxsize=64)  # called before every request
def _bucket_access(scheme: str, fields: AccessFields, from_file: bool, ca_file: str | None) -> BucketAccess:
    if fields.signature not in ("", *_SIGNATURES):
        raise DeniedError(f"{scheme}://: unknown value of 'signature'", hint=f"known: {', '.join(_SIGNATURES)}")
    region = fields.region_name or "us-east-1"
    endpoint = _endpoint(scheme, fields, region)
    host = _host(endpoint)
    path_style = fields.path_style
    if path_style is None:
        path_style = _is_address(host) or not (host.endswith(_VIRTUAL_HOST_DOMAINS) or fields.signature == "obs")
    return BucketAccess(
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
    configured = fields.obs_endpoint or fields.server
    if configured:
        return with_scheme(configured)
    if scheme == "s3":
        return f"https://s3.{region}.amazonaws.com"
    raise DeniedError(
        "obs://: neither a region nor an endpoint of OBS is configured",
        hint="set OBS_REGION=cn-north-4 (or OBS_ENDPOINT), region_name in the access file, or modelarts: region: in job.yaml",
    )


def _host(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        if parts.hostname and parts.scheme in ("http", "https") and parts.port != 0:
            return parts.hostname
    except ValueError:
        pass
    # The value is not quoted: it may be a secret in the wrong field.
    raise DeniedError("the endpoint is not a valid URL", hint="example: https://obs.cn-north-4.myhuaweicloud.com")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
