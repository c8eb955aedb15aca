"""Write ma-pre-start.sh, which ModelArts runs before training."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts.agent_wheels import install_step
from paceline.jobs.node import node_facts

NAME = "ma-pre-start.sh"
_OLD_MODE = re.compile(r"^.*SINGLESERVER_MODE=.*\n?", re.MULTILINE)


def script_key(job: JobDescription) -> str:
    """Relative to code_dir: the boot file's directory, where ModelArts looks for it."""
    return str(PurePosixPath(job.boot_file).parent / NAME)


def pre_start_script(job: JobDescription) -> str | None:
    """The user's script with our lines appended; None when there is nothing to run."""
    own = Path(job.code_dir) / script_key(job)
    kept = _OLD_MODE.sub("", own.read_text()) if own.is_file() else ""
    steps = _steps(job)
    if not steps:
        return kept or None
    head = kept.rstrip("\n") or "#!/bin/bash"
    return "\n".join([head, "# Written by paceline from the job description.", *steps, ""])


def pre_start_files(job: JobDescription) -> dict[str, Path]:
    """Files that the script installs or runs: key below code_dir → local file."""
    given = (*job.pre_start.wheels, *job.pre_start.packages)
    files = [Path(job.code_dir) / name for name in given]
    files += [Path(node_facts.__file__)] if node_facts.VARIABLE in job.environment else []
    return {f"{run_directory(job)}/{file.name}": file for file in files}


def _steps(job: JobDescription) -> list[str]:
    steps, wanted = [], job.pre_start
    if job.single_server_mode:
        steps.append("export SINGLESERVER_MODE=True")
    steps += [f"export {name}={level}" for name, level in wanted.log_levels.items()]
    facts = node_facts.VARIABLE in job.environment
    agent = install_step(job)
    if wanted.wheels or wanted.packages or facts or agent:
        # ModelArts sources or runs the script, depending on its version: this names it in both cases.
        steps.append('here=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)')
    if wanted.packages:
        # The images' user may not write to /usr/local/Ascend, but may use sudo; some images run as root and have none.
        steps.append('as_root=""; [ "$(id -u)" = 0 ] || as_root=sudo')
    for name in wanted.packages:
        package = f'"$here"/run/{shlex.quote(Path(name).name)}'
        install = f"$as_root {package} --quiet --upgrade || $as_root {package} --quiet --full"
        steps.append(f"$as_root chmod +x {package} && {{ {install}; }} || exit 1")
    for name in wanted.wheels:
        wheel = f'"$here"/run/{shlex.quote(Path(name).name)}'
        # This very file, also where the image has the same version; then what it requires and the image does not have.
        steps.append(f"pip install --no-deps --force-reinstall {wheel} || exit 1")
        steps.append(f'pip install --find-links "$here"/run {wheel} || exit 1')
    if agent:
        steps.append(agent)
    if facts:
        # Never a reason not to train.
        steps.append(f'python "$here"/run/{Path(node_facts.__file__).name} || true')
    return [*steps, *wanted.commands]


def run_directory(job: JobDescription) -> str:
    return str(PurePosixPath(job.boot_file).parent / "run")
