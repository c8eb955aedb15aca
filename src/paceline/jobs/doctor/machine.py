"""Checks of this machine: disk, Python and framework versions, Slurm's programs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paceline.jobs.description import JobDescription
from paceline.jobs.doctor.check import Check, bad, good, warning

_PACKAGES = ("paceline", "torch", "torch-npu", "mindspore", "obstore", "esdk-obs-python", "huaweicloudsdkmodelarts")
_LEAST_FREE = 5e9
_EVICTED = 0.9
"""Kubernetes evicts a ModelArts container when its disk is this full."""


def versions(job: JobDescription | None) -> Iterator[Check]:
    """What is installed, without importing it, and what the job needs here that is not."""
    found = {name: _version(name) for name in _PACKAGES}
    installed = ", ".join(f"{name} {number}" for name, number in [*found.items(), ("CANN", _cann())] if number)
    yield good("versions", "versions", python=platform.python_version(), installed=installed)
    if job is None:
        return
    if job.backend != "modelarts" and not found[job.framework]:
        yield warning("framework", "framework", framework=job.framework)
    if job.backend == "modelarts" and not found["huaweicloudsdkmodelarts"]:
        yield bad("sdk", "sdk")


def disks(places: list[Path]) -> Iterator[Check]:
    """Free space where jobs write; each file system once."""
    seen: set[int] = set()
    for place in places:
        while not place.exists():
            place = place.parent
        device = place.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        usage = shutil.disk_usage(place)
        used = usage.used / usage.total
        make_check = warning if usage.free < _LEAST_FREE or used > _EVICTED else good
        yield make_check("disk", "disk", place=place, free=usage.free / 1e9, used=used)


def slurm() -> Iterator[Check]:
    """Slurm's programs are installed, and its controller answers."""
    absent = [name for name in ("sbatch", "squeue", "scancel", "scontrol") if shutil.which(name) is None]
    if absent:
        yield bad("slurm", "slurm_missing", programs=", ".join(absent))
        return
    done = subprocess.run(["sinfo", "--noheader", "--format=%P %D %t"], capture_output=True, text=True, check=False)
    if done.returncode:
        yield bad("slurm", "slurm_unreachable", reason=done.stderr.strip())
    else:
        yield good("slurm", "slurm", partitions="; ".join(done.stdout.split("\n")).strip("; "))


def _cann(root: Path | None = None) -> str:
    """Of the toolkit that training would load; empty where there is none."""
    home = root or Path(os.environ.get("ASCEND_HOME_PATH") or "/usr/local/Ascend/ascend-toolkit/latest")
    for file in [home / "version.cfg", *home.glob("*/ascend_toolkit_install.info")]:
        if file.is_file() and (
            match := re.search(r"version=\[?(?:[\w.]+:)?([\w.]+)", file.read_text(errors="replace"))
        ):
            return match[1]
    return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
