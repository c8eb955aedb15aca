"""Convert ais-bench's configuration to job.yaml, without its credentials."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from paceline.core.errors import UsageError
from paceline.jobs.aisbench.aisbench_config import SESSIONS, AisbenchConfig, AisbenchSession
from paceline.storage.cloud_endpoints import region_domain, with_scheme
from paceline.storage.credentials import AccessFields, user_access_file

_CARDS = re.compile(r"\.(\d*)xlarge$")


def to_job_description(config: AisbenchConfig, code_dir: str, *, single_server_mode: bool = False) -> dict[str, Any]:
    """The keys of job.yaml, in reading order."""
    session = config.session
    found = {
        "job_name": session.job_name,
        "backend": "modelarts",
        "code_dir": code_dir,
        "code_url": _url(session.code_dir),
        "boot_file": _boot_file(session),
        "inputs": {"data_url": _url(session.inputs)} if session.inputs else {},
        "output_url": _url(session.out_base_url),
        "hyperparameters": _hyperparameters(session),
        "engine": {"name": session.framework_type, "version": session.framework_version}
        if session.framework_type
        else None,
        "flavor": session.train_instance_type,
        "pool_id": session.pool_id,
        "nodes": session.train_instance_count,
        "ranks": _cards(session.train_instance_type),
        "single_server_mode": single_server_mode,
        "naming": "timestamp" if config.name == "session_config_v2" else "version",
        "description": session.job_description_prefix,
        "pre_start": {"agent": False},  # its code does not import Paceline
        "modelarts": _modelarts(config.access, session),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {}, False)}


def as_yaml(description: dict[str, Any], source: Path) -> str:
    text: str = yaml.safe_dump(description, sort_keys=False, allow_unicode=True, width=120)
    credentials = f"Credentials are read from the environment or {user_access_file()}, never from this file."
    return f"# From {source.name}. {credentials}\n{text}"


def session_note(config: AisbenchConfig) -> str:
    """Which session was read, and how to read another one."""
    version = next(version for version, name in SESSIONS.items() if name == config.name)
    default = ", ais-bench's default" if version == "V1" and config.others else ""
    other = next((version for version, name in SESSIONS.items() if name in config.others), None)
    more = f"; the file also has {config.others[0]}: --version {other} reads it" if other else ""
    return f"{config.name} was read ({version}{default}){more}"


def left_out(config: AisbenchConfig) -> list[str]:
    """Settings of the original that job.yaml does not hold, and why."""
    session, access = config.session, config.access
    found = []
    if session.nas_share_addr and not _mounts(session):
        found.append(f"nas_*: only NFS can be mounted, this is {session.nas_type or 'without nas_mount_path'}")
    if (access.server or access.obs_endpoint) and not _site(access) and not _is_public(access):
        found.append("the OBS endpoint: it is in no description; --save-keys keeps it in the access file")
    if access.access_key:
        found.append("credentials: --save-keys saves them to a file with mode 0600")
    return found


def save_credentials(access: AccessFields) -> Path:
    """Write the access file, readable by its owner only; an existing file is not changed."""
    if not access.access_key or not access.secret_access_key:
        raise UsageError("the configuration has no credentials to save")
    target = user_access_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in msgspec.structs.asdict(access).items() if value}
    data = msgspec.json.format(msgspec.json.encode({"access_config": fields}), indent=1)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{target} already exists, not changed", hint="add access_config to it yourself") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return target


def _url(path: str) -> str:
    """ModelArts' notation /bucket/path/ as a URL."""
    path = re.sub(r"^(?:obs|s3):/+", "/", path)
    return f"obs:/{path}" if path.startswith("/") else path


def _boot_file(session: AisbenchSession) -> str:
    code, boot = _url(session.code_dir).rstrip("/") + "/", _url(session.boot_file)
    if boot.startswith("obs://") and not boot.startswith(code):
        raise UsageError(f"boot_file {session.boot_file} is outside of code_dir {session.code_dir}")
    return boot.removeprefix(code)


def _hyperparameters(session: AisbenchSession) -> dict[str, Any]:
    given = session.parameters or session.hyperparameters
    return {str(each.get("name", each.get("label", ""))): each.get("value", "") for each in given}


def _cards(flavor: str | None) -> int:
    """modelarts.kat1.4xlarge has 4 cards, .xlarge one; nodes of dedicated pools have 8."""
    found = _CARDS.search(flavor or "")
    return int(found[1] or 1) if found else 8


def _modelarts(access: AccessFields, session: AisbenchSession) -> dict[str, Any]:
    site = _site(access)
    endpoint = access.modelarts_endpoint
    if site and endpoint and with_scheme(endpoint) == f"https://modelarts.{site}":
        endpoint = ""  # it follows from the site
    found = {
        "region": access.region_name,
        "site": site,
        "project_id": access.project_id,
        "endpoint": endpoint,
        "mounts": _mounts(session),
    }
    return {name: value for name, value in found.items() if value}


def _site(access: AccessFields) -> str:
    """The domain of a private site, from the host name of its OBS: buckets and ModelArts have it in common."""
    host = urlsplit(with_scheme(access.obs_endpoint or access.server)).hostname or ""
    if _is_public(access) or not host.startswith("obs."):
        return ""
    return host.partition(".")[2]


def _is_public(access: AccessFields) -> bool:
    """Whether the endpoint is the one that follows from the region anyway."""
    given = access.obs_endpoint or access.server
    host = urlsplit(with_scheme(given)).hostname if given else None
    return bool(access.region_name) and host in (None, f"obs.{region_domain(access.region_name)}")


def _mounts(session: AisbenchSession) -> list[dict[str, str]]:
    if (session.nas_type or "nfs").lower() != "nfs" or not (session.nas_share_addr and session.nas_mount_path):
        return []
    return [{"server": session.nas_share_addr, "path": session.nas_mount_path}]
