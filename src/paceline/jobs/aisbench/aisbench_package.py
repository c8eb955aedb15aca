"""Find and read the files of an unpacked ais-bench package, without running any of them.

code/config/modelarts_config.py    credentials, session
code/config/config.sh              SINGLESERVER_MODE, PYTHON_COMMAND, MODELARTS_VERSION
code/config.json, system.json      tester server, description of the machine
code/code/                         the training code
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.core.errors import UsageError

CONFIG = "modelarts_config.py"
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)")
_LITERAL = re.compile(r"""\s*(?:"([^"$`\\]*)"|'([^']*)'|([^\s"'$`;&|<>()\\#]*))\s*(?:#.*)?;?\s*""")
_LARGEST = 1_000_000
_DEEPEST = 4
_READ = ("SINGLESERVER_MODE", "PYTHON_COMMAND", "MODELARTS_VERSION")


@dataclass(frozen=True)
class AisbenchPackage:
    """Where the parts of a package are; None where it has no such file."""

    config: Path
    code: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of config.sh: the variables that are given as plain values."""
    unread: tuple[str, ...] = ()
    """Variables of config.sh that would need to be run."""
    tester: Path | None = None
    system: Path | None = None

    @property
    def single_server_mode(self) -> bool:
        return self.settings.get("SINGLESERVER_MODE", "").lower() == "true"

    @property
    def version(self) -> str | None:
        """V1 or V2, where config.sh says; ais-bench's own default is V1."""
        return self.settings.get("MODELARTS_VERSION") or None

    def left_out(self) -> list[str]:
        """What has no meaning here, and why."""
        notes = [f"{name}: config.sh sets it by running something" for name in self.unread]
        if command := self.settings.get("PYTHON_COMMAND"):
            notes.append(f"PYTHON_COMMAND={command}: Paceline runs in its own Python, the job in its image's")
        other = sorted(self.settings.keys() - set(_READ))
        if other:
            notes.append(f"{', '.join(other)}: of config.sh, not used on ModelArts")
        return notes


def open_package(path: Path) -> AisbenchPackage:
    """A package's directory, or a modelarts_config.py alone."""
    if not path.is_dir():
        return AisbenchPackage(path)
    config = _nearest(path, CONFIG)
    if config is None:
        raise UsageError(
            f"{path}: no {CONFIG} found in it", hint="expected an unpacked ais-bench package for ModelArts"
        )
    script = _nearest(path, "config.sh")
    settings, unread = read_assignments(script) if script else ({}, ())
    code = next((each for each in (path / "code" / "code", path / "code") if each.is_dir()), None)
    return AisbenchPackage(config, code, settings, unread, _nearest(path, "config.json"), _nearest(path, "system.json"))


def read_assignments(script: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """NAME=value lines of a shell script; the last one counts, as in a shell. Others are named, never run."""
    values: dict[str, str] = {}
    unread: dict[str, None] = {}
    for line in script.read_bytes()[:_LARGEST].decode(errors="replace").splitlines():
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            continue
        literal = _LITERAL.fullmatch(match[2])
        if literal is None:
            unread[match[1]] = None
            values.pop(match[1], None)
        else:
            values[match[1]] = next((each for each in literal.groups() if each is not None), "")
            unread.pop(match[1], None)
    return values, tuple(unread)


def _nearest(directory: Path, name: str) -> Path | None:
    """The file of this name that is least deep; the training code below may have files of the same names."""
    for depth in range(_DEEPEST + 1):
        found = sorted(directory.glob("/".join(["*"] * depth + [name])))
        if found:
            return found[0]
    return None
