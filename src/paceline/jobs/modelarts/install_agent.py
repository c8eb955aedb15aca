"""Installs Paceline's agent in a container, from the wheels beside this file, without a network.

Standard library only, Python 3.7. It runs before training, once per node or once per card: the first process installs, the others
wait for it. A problem is printed into the job's log and is no reason not to train.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

MARK = "paceline agent: "
OLDEST = (3, 8)


def main(directory: Path, extras: str) -> str:
    """What was done, in one line."""
    wheels = sorted(directory.glob("paceline-*.whl"))
    if sys.version_info < OLDEST:
        return f"not installed: it needs Python 3.8, this is {sys.version_info[0]}.{sys.version_info[1]}"
    if not wheels:
        return f"not installed: no wheel in {directory}"
    wheel = wheels[-1]
    content = hashlib.sha256(wheel.read_bytes()).hexdigest()
    place = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    with Path(tempfile.gettempdir(), f"paceline-agent-{os.getuid()}-{place}").open("a+") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        marker.seek(0)
        installed = _installed()
        if installed and not installed.endswith("+agent"):
            return f"not installed: the image has its own Paceline {installed}"
        if installed and marker.read().strip() == content:
            return f"already installed: {installed}"
        problem = _install(wheel, extras, replace=installed is not None)
        if problem:
            return f"not installed: {problem}"
        marker.seek(0)
        marker.truncate()
        marker.write(content)
        return f"installed: {wheel.name}"


def _installed() -> Optional[str]:
    """Version of the image's Paceline; None if it has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("paceline")
    except PackageNotFoundError:
        return None


def _install(wheel: Path, extras: str, *, replace: bool) -> str:
    """Why it failed; empty if it did not. What the image already has in a version that will do is kept."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(wheel.parent)]
    pip += ["--disable-pip-version-check", "--no-warn-script-location", "--quiet"]
    steps: List[List[str]] = [[*pip, f"{wheel}[{extras}]" if extras else str(wheel)]]
    if replace:
        steps.insert(0, [*pip, "--no-deps", "--force-reinstall", str(wheel)])
    for step in steps:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            errors = re.findall(r"^ERROR: (.*)", output, re.MULTILINE) or output.strip().splitlines() or ["pip failed"]
            return f"pip: {errors[-1]}"
    return ""


if __name__ == "__main__":
    # In one write, with line ends on both sides: ranks share the log.
    os.write(1, ("\n" + MARK + main(Path(__file__).absolute().parent, "".join(sys.argv[1:2])) + "\n").encode())
