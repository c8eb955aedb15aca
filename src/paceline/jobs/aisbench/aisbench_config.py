"""Read ais-bench's modelarts_config.py without running it: only literals in ed({...}) are evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.errors import UsageError
from paceline.storage.credentials import AccessFields

_WRAPPERS = ("ed", "edict", "EasyDict", "dict")
_MOST_BYTES = 1_000_000
SESSIONS = {"V1": "session_config", "V2": "session_config_v2"}
"""In ais-bench's own order of preference."""


class AisbenchSession(msgspec.Struct, frozen=True):
    """session_config (hyperparameters with labels) or session_config_v2 (parameters with names)."""

    job_name: str
    code_dir: str
    boot_file: str
    hyperparameters: list[dict[str, str | int | float | bool]] = []
    parameters: list[dict[str, str | int | float | bool]] = []
    inputs: str | None = None
    framework_type: str = ""
    framework_version: str = ""
    pool_id: str | None = None
    train_instance_type: str | None = None
    train_instance_count: int = 1
    nas_type: str | None = None
    nas_share_addr: str | None = None
    nas_mount_path: str | None = None
    out_base_url: str = ""
    job_description_prefix: str = ""


class AisbenchConfig(msgspec.Struct, frozen=True):
    access: AccessFields
    session: AisbenchSession
    name: str
    """session_config or session_config_v2."""
    others: tuple[str, ...] = ()
    """Sessions that the file has as well."""


def read_aisbench_config(file: Path, version: str | None = None) -> AisbenchConfig:
    """The session of this version; without one session_config, as ais-bench does unless V2 is asked for."""
    found = _literals(file)
    names = (SESSIONS[version],) if version in SESSIONS else tuple(SESSIONS.values())
    name = next((each for each in names if each in found), None)
    if name is None:
        raise UsageError(f"{file}: {' or '.join(names)} not found", hint="expected ais-bench's modelarts_config.py")
    access = _as(found.get("access_config", {}), AccessFields, file, "access_config")
    others = tuple(each for each in SESSIONS.values() if each in found and each != name)
    return AisbenchConfig(access, _as(found[name], AisbenchSession, file, name), name, others)


def _literals(file: Path) -> dict[str, dict[str, Any]]:
    """Every NAME = ed({...}), and NAME.key = literal after it; anything that would need to be run is refused."""
    try:
        data = file.read_bytes()
        if len(data) > _MOST_BYTES:
            raise UsageError(f"{file}: {len(data):,} bytes is too large for a configuration")
        module = ast.parse(data, str(file))
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"{file}{f':{line}' if line else ''}: not readable as Python") from None
    found: dict[str, dict[str, Any]] = {}
    for statement in module.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _is_text(statement):
            continue
        _assign(file, statement, found)
    return found


def _assign(file: Path, statement: ast.stmt, found: dict[str, dict[str, Any]]) -> None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(statement, ast.Assign) or target is None:
        raise _refusal(file, statement)
    if isinstance(target, ast.Name):
        value = _value(file, statement.value)
        if isinstance(value, dict):
            found[target.id] = value
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in found:
        found[target.value.id][target.attr] = _value(file, statement.value)
    else:
        raise _refusal(file, statement)


def _value(file: Path, node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _WRAPPERS:
        if len(node.args) == 1 and not node.keywords:
            return _value(file, node.args[0])
        if not node.args:
            return {each.arg: _value(file, each.value) for each in node.keywords if each.arg}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        raise _refusal(file, node) from None


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _refusal(file: Path, node: ast.AST) -> UsageError:
    return UsageError(
        f"{file}:{getattr(node, 'lineno', 1)}: only literal values are read; this would need to be run",
        hint="replace it by its value",
    )


def _as(value: Mapping[str, Any], kind: Any, file: Path, name: str) -> Any:
    given = {key: each for key, each in value.items() if each is not None and each != ""}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        # The message names the key, never the value.
        raise UsageError(f"{file}: {name}: {error}") from None
