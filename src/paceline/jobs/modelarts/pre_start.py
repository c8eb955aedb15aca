"""ma-pre-start.sh: what ModelArts runs beside the boot file before training."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

from paceline.jobs.description import JobDescription

NAME = "ma-pre-start.sh"
_OLD_MODE = re.compile(r"^.*SINGLESERVER_MODE=.*\n?", re.MULTILINE)


def script_key(job: JobDescription) -> str:
    """Below code_dir: beside the boot file, where ModelArts looks."""
    return str(PurePosixPath(job.boot_file).parent / NAME)


def script(job: JobDescription) -> str | None:
    """The user's own script with our lines after it; None when there is nothing to do."""
    own = Path(job.code_dir) / script_key(job)
    kept = _OLD_MODE.sub("", own.read_text()) if own.is_file() else ""
    steps = _steps(job)
    if not steps:
        return kept or None
    head = kept.rstrip("\n") or "#!/bin/bash"
    return "\n".join([head, "# Written by paceline from the job description.", *steps, ""])


def packages(job: JobDescription) -> dict[str, Path]:
    """Files that the steps install: key below code_dir → file here."""
    found = (*job.pre_start.wheels, *job.pre_start.packages)
    return {f"{_run_directory(job)}/{Path(name).name}": Path(job.code_dir) / name for name in found}


def _steps(job: JobDescription) -> list[str]:
    steps, wanted = [], job.pre_start
    if job.single_server_mode:
        steps.append("export SINGLESERVER_MODE=True")
    steps += [f"export {name}={level}" for name, level in wanted.log_levels.items()]
    if wanted.wheels or wanted.packages:
        # ModelArts sources or runs it depending on its version: either way this names the script itself.
        steps.append('here=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)')
    for name in wanted.packages:
        package = f'"$here"/run/{shlex.quote(Path(name).name)}'
        steps.append(f"chmod +x {package} && {package} --quiet --upgrade || {package} --quiet --full || exit 1")
    for name in wanted.wheels:
        steps.append(f'pip install --no-deps --force-reinstall "$here"/run/{shlex.quote(Path(name).name)} || exit 1')
    return [*steps, *wanted.commands]


def _run_directory(job: JobDescription) -> str:
    return str(PurePosixPath(job.boot_file).parent / "run")
