"""Provenance of a benchmark: versions, machine, commit and configuration, enough to run it again."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paceline import __version__
from paceline.bench.result import EnergyPart, Provenance
from paceline.core.message import Message, message

BUSY = 0.75
"""Load per core from which on other work disturbs a benchmark."""
_FRAMEWORKS = ("torch", "torch-npu", "mindspore", "tensorflow", "numpy")


def provenance(config: Path, code: Path, energy: EnergyPart) -> Provenance:
    """Versions come from package metadata, without importing the packages."""
    return Provenance(
        paceline=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        host=socket.gethostname(),
        cores=cores(),
        cards=f"{energy.cards} ({energy.source})" if energy.cards else None,
        frameworks={name: found for name in _FRAMEWORKS if (found := _version(name))},
        commit=_commit(code),
        command=tuple(sys.argv),
        config=str(config),
        config_sha256=hashlib.sha256(config.read_bytes()).hexdigest(),
    )


def cores() -> int | None:
    """Cores this process may use, which is what a container has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def busy_machine_warning() -> Message | None:
    """A warning if this machine is busy with other work when a benchmark begins."""
    if not hasattr(os, "getloadavg"):
        return None
    load, own = os.getloadavg()[0], cores() or 1
    if load < BUSY * own:
        return None
    return message("busy", load=load, n=own)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(code: Path) -> str | None:
    """None outside a git tree, or without git."""
    commit = _git(code, "rev-parse", "HEAD")
    if not commit:
        return None
    return commit + ("+changes" if _git(code, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")


def _git(where: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(where), *words], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
