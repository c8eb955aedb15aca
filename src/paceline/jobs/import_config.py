"""Convert ais-bench's configuration to job.yaml, without its credentials."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from paceline.core.errors import UsageError
from paceline.jobs.aisbench_config import AisbenchConfig, AisbenchSession
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
        "modelarts": _modelarts(config.access),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {}, False)}


def as_yaml(description: dict[str, Any], source: Path) -> str:
    text: str = yaml.safe_dump(description, sort_keys=False, allow_unicode=True, width=120)
    credentials = f"Credentials are read from the environment or {user_access_file()}, never from this file."
    return f"# From {source.name}. {credentials}\n{text}"


def unsupported_settings(config: AisbenchConfig) -> list[str]:
    """Settings of the original that job.yaml cannot express."""
    session = config.session
    return ["nas_*: ModelArts' v2 requests have no mounts"] if session.nas_type or session.nas_share_addr else []


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


def _modelarts(access: AccessFields) -> dict[str, str]:
    found = {"region": access.region_name, "project_id": access.project_id, "endpoint": access.modelarts_endpoint}
    return {name: value for name, value in found.items() if value}
