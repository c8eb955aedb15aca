"""Write job.yaml and bench.yaml from an ais-bench package, and say what was read and what was left out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import yaml

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import UsageError
from paceline.jobs.aisbench.aisbench_config import read_aisbench_config
from paceline.jobs.aisbench.aisbench_package import AisbenchPackage
from paceline.jobs.aisbench.import_config import as_yaml, left_out, save_credentials, session_note, to_job_description

_BENCH = "bench.yaml"
_LARGEST = 1_000_000


@dataclass(frozen=True)
class Imported:
    written: tuple[Path, ...]
    notes: tuple[str, ...]


def import_package(
    package: AisbenchPackage,
    output: Path,
    *,
    code_dir: str | None = None,
    version: str | None = None,
    single_server_mode: bool = False,
    save_keys: bool = False,
) -> Imported:
    """Nothing that exists is overwritten; a lone modelarts_config.py gives no bench.yaml."""
    is_package = package.code is not None
    bench = output.with_name(_BENCH)
    for path in (output, *([bench] if is_package else [])):
        if path.exists():
            raise UsageError(
                f"{path} already exists", hint="choose another --output, in another directory for a package"
            )
    config = read_aisbench_config(package.config, version)
    code = code_dir or _relative(package.code, output) or "code"
    description = to_job_description(config, code, single_server_mode=single_server_mode)
    text = as_yaml(description, package.config)
    notes = [session_note(config), *[f"left out: {each}" for each in package.left_out()]]
    skipped = [each for each in left_out(config) if not (save_keys and "--save-keys" in each)]
    notes += [f"left out: {each}" for each in skipped]
    if save_keys:
        notes.append(f"credentials: {save_credentials(config.access)}")
    notes += _code_notes(description, output)
    output.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(output, text)
    if not is_package:
        return Imported((output,), tuple(notes))
    described, more = _bench(package, output)
    atomic_write_text(bench, yaml.safe_dump(described, sort_keys=False, allow_unicode=True))
    return Imported((output, bench), (*notes, *more))


def _code_notes(description: dict[str, Any], output: Path) -> list[str]:
    """The description is written in any case: the code may come later."""
    boot = output.parent / str(description["code_dir"]) / str(description["boot_file"])
    return [] if boot.is_file() else [f"{boot} does not exist yet: --code-dir names the directory with the code"]


def _bench(package: AisbenchPackage, output: Path) -> tuple[dict[str, Any], list[str]]:
    """`./ais-bench-stubs test` is `paceline bench run bench.yaml`; network mode adds the tester."""
    found: dict[str, Any] = {"job": output.name, "repeat": 1}
    if package.tester is None:
        return found, []
    server = _tester_server(package.tester)
    if not server or _is_this_machine(server):
        return found, [
            f"left out: tester {server or '(none)'} of config.json: an example; tester: config.json adds one"
        ]
    found["tester"] = _relative(package.tester, output)
    if package.system is not None:
        found["system"] = _relative(package.system, output)
    return found, [f"results are sent to the tester {server} of config.json"]


def _tester_server(file: Path) -> str:
    try:
        content = msgspec.json.decode(file.read_bytes()[:_LARGEST])
    except (OSError, msgspec.DecodeError):
        return ""
    server = content.get("tester_server_ip", "") if isinstance(content, dict) else ""
    return server if isinstance(server, str) else ""


def _is_this_machine(server: str) -> bool:
    try:
        return ip_address(server).is_loopback
    except ValueError:
        return server == "localhost"


def _relative(path: Path | None, output: Path) -> str | None:
    return os.path.relpath(path, output.parent.absolute()) if path is not None else None
