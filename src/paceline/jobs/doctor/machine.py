"""This machine: disk, Python and frameworks, the backend's programs."""

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
from paceline.jobs.doctor.check import Check, Text, bad, good, warning

_PACKAGES = ("paceline", "torch", "torch-npu", "mindspore", "obstore", "esdk-obs-python", "huaweicloudsdkmodelarts")
_LEAST_FREE = 5e9
_EVICTED = 0.9
"""Kubernetes evicts a ModelArts container when its disk is this full."""


def versions(job: JobDescription | None) -> Iterator[Check]:
    """What is installed, without importing it; what the job needs here and is not."""
    found = {name: _version(name) for name in _PACKAGES}
    said = ", ".join(f"{name} {number}" for name, number in [*found.items(), ("CANN", _cann())] if number)
    yield good("versions", f"Python {platform.python_version()}, {said}", f"Python {platform.python_version()}，{said}")
    if job is None:
        return
    if job.backend != "modelarts" and not found[job.framework]:
        yield warning(
            "framework",
            Text(f"{job.framework} is not installed in this Python", f"当前 Python 中没有安装 {job.framework}"),
            Text(
                f"install {job.framework}, or set framework: in the description",
                f"请安装 {job.framework}，或修改描述中的 framework",
            ),
        )
    if job.backend == "modelarts" and not found["huaweicloudsdkmodelarts"]:
        yield bad(
            "sdk",
            Text("huaweicloudsdkmodelarts is not installed", "没有安装 huaweicloudsdkmodelarts"),
            Text("pip install 'paceline[modelarts]'", "pip install 'paceline[modelarts]'"),
        )


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
        free, used = usage.free / 1e9, usage.used / usage.total
        en = f"{place}: {free:,.0f} GB free ({used:.0%} used)"
        zh = f"{place}：剩余 {free:,.0f} GB（已用 {used:.0%}）"
        if usage.free < _LEAST_FREE or used > _EVICTED:
            yield warning("disk", Text(en, zh), Text("make room before the job fills it", "请先清理磁盘空间"))
        else:
            yield good("disk", en, zh)


def slurm() -> Iterator[Check]:
    """Its programs, and whether the controller answers."""
    absent = [name for name in ("sbatch", "squeue", "scancel", "scontrol") if shutil.which(name) is None]
    if absent:
        names = ", ".join(absent)
        yield bad(
            "slurm", Text(f"not installed here: {names}", f"本机没有：{names}"),
            Text("run this on a host of the Slurm cluster", "请在 Slurm 集群的登录节点上运行"),
        )  # fmt: skip
        return
    done = subprocess.run(["sinfo", "--noheader", "--format=%P %D %t"], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip()
        yield bad(
            "slurm", Text(f"Slurm does not answer: {said}", f"Slurm 没有响应：{said}"),
            Text("is slurmctld running, and SLURM_CONF right?", "请检查 slurmctld 是否在运行、SLURM_CONF 是否正确"),
        )  # fmt: skip
    else:
        said = "; ".join(done.stdout.split("\n")).strip("; ")
        yield good("slurm", f"partitions (nodes, state): {said}", f"分区（节点数、状态）：{said}")


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
