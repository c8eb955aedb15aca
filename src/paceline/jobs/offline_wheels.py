"""Wheels for a machine without a network: downloaded for its Python and platform, or built where only a source is published."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError

SOURCE_ONLY = ("esdk-obs-python", "crcmod")
"""Distributions without a wheel. Both are pure Python; crcmod's C extension is optional and left out, because a wheel with it
fits only the machine that built it."""
_PIP_FOR_TARGET = """
import json, runpy, sys
from pip._vendor.packaging import markers
own, target = markers.default_environment, json.loads(sys.argv.pop(1))
markers.default_environment = lambda: {**own(), **target}
if not markers.Marker('python_version == "%s"' % target["python_version"]).evaluate():
    sys.exit("ERROR: this version of pip cannot evaluate markers for another Python")
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""pip evaluates markers such as python_version < "3.10" for the Python and the machine that it runs on, whatever
--python-version and --platform say: packages that only the target needs would be missing."""
_PLATFORM = re.compile(r"manylinux_2_(\d+)_(\w+)")
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST = {"x86_64": 5, "i686": 5}
_OLDEST_ELSEWHERE = 17


def accepted_platforms(platform: str) -> list[str]:
    """Platform tags of wheels that run there: this C library's and those of older ones; pip does not expand them.

    >>> accepted_platforms("manylinux_2_18_aarch64")
    ['manylinux_2_18_aarch64', 'manylinux_2_17_aarch64', 'manylinux2014_aarch64']
    """
    found = _PLATFORM.fullmatch(platform)
    if found is None:
        raise UsageError(f"unknown platform {platform}", hint="e.g. manylinux_2_28_aarch64, manylinux_2_28_x86_64")
    return list(_tags(int(found[1]), found[2]))


def _tags(newest: int, machine: str) -> Iterator[str]:
    for minor in range(newest, _OLDEST.get(machine, _OLDEST_ELSEWHERE) - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLDER_NAMES:
            yield f"{_OLDER_NAMES[minor]}_{machine}"


def download_wheels(
    wanted: Sequence[str],
    python: str,
    platforms: Sequence[str],
    directory: Path,
    *,
    find_links: Path | None = None,
    index: bool = True,
) -> None:
    """pip download for another Python and machine. `find_links`: wheels that no index has; index=False: those alone."""
    version = python.replace(".", "")
    command = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    command += [f"--abi={abi}" for abi in (f"cp{version}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in platforms]
    command += [f"--dest={directory}", *([f"--find-links={find_links}"] if find_links else [])]
    target = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": platforms[0].split("_", 3)[3],
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    start = ["-c", _PIP_FOR_TARGET, json.dumps(target), "download"]
    _pip(start, [*command, *([] if index else ["--no-index"]), *wanted])


def build_source_only(wanted: Sequence[str], directory: Path) -> None:
    """Wheels for any machine of those distributions that are published as a source only."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            "wheel",
            "--no-deps",
            "--no-cache-dir",
            f"--wheel-dir={scratch}",
            *(f"--no-binary={name}" for name in SOURCE_ONLY),
        ]
        _pip(
            ["-m", "pip", "wheel"], [*command, *wanted], {"CC": "false"}
        )  # without a compiler crcmod builds as pure Python
        for wheel in sorted(Path(scratch).glob("*.whl")):
            if not wheel.name.endswith("-none-any.whl"):
                raise PacelineError(f"{wheel.name} fits only this machine; it was expected to be pure Python")
            os.replace(wheel, directory / wheel.name)


def _pip(start: Sequence[str], words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    if importlib.util.find_spec("pip") is None:
        raise PacelineError("this Python has no pip")
    command = [sys.executable, *start, "--quiet", "--disable-pip-version-check", "--no-input", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode:
        errors = re.findall(r"^ERROR: (.*)", done.stderr, re.MULTILINE) or done.stderr.strip().splitlines()
        raise PacelineError(f"pip: {errors[-1] if errors else 'failed'}")
