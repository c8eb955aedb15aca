"""Paceline for a job's container: the agent wheel, and wheels of what its commands need, for the image's Python.

They are uploaded into run/paceline-agent and installed there by ma-pre-start.sh without a network (install_agent.py).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.core import agent_wheel
from paceline.core.errors import PacelineError
from paceline.core.waiting import waiting_for
from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts import install_agent
from paceline.storage.cache_dir import cache_root

DIRECTORY = "paceline-agent"
"""Below run/, beside the boot file."""
MACHINES = ("aarch64", "x86_64")
_PYTHON = re.compile(r"(?:py_|python_?)(\d+\.\d+)", re.IGNORECASE)
_GLIBC = ("2_17", "2_28")
"""Oldest first; EulerOS, openEuler and Ubuntu images of ModelArts have 2.28 or newer, wheels are built for either."""


@dataclass(frozen=True)
class AgentPlan:
    """Which agent a job's image gets; `note` says why it gets none, or not all of it."""

    extras: tuple[str, ...] = ()
    python: str = ""
    machines: tuple[str, ...] = MACHINES
    note: str = ""

    @property
    def wanted(self) -> bool:
        return bool(self.python)


def plan_agent(job: JobDescription) -> AgentPlan:
    """From the description and the name of its engine; an image of one's own does not say its Python."""
    wanted = job.pre_start
    if wanted.agent is False:
        return AgentPlan()
    version = job.engine.version if job.engine is not None else ""
    found = _PYTHON.search(version)
    python = wanted.python or (found[1] if found else "")
    if not python:
        return AgentPlan(
            note='Paceline is not installed in the job: the image\'s Python is not known (pre_start: {python: "3.9"}; '
            "or agent: false, if the job does not import it)"
        )
    if tuple(int(part) for part in python.split(".")) < install_agent.OLDEST:
        return AgentPlan(note=f"Paceline is not installed in the job: it needs Python 3.8, the image has {python}")
    extras = ("commands",) if wanted.agent is True else wanted.agent
    machines = tuple(machine for machine in MACHINES if machine in version) or MACHINES
    return AgentPlan(extras, python, machines)


def agent_files(job: JobDescription, scratch: Path) -> tuple[dict[str, Path], list[str]]:
    """Name below run/ → local file, made or downloaded now; and notes."""
    plan = plan_agent(job)
    if not plan.wanted:
        return {}, [plan.note] if plan.note else []
    files = [Path(install_agent.__file__), agent_wheel.write_agent_wheel(scratch), *_requirements(job, plan)]
    return {f"{DIRECTORY}/{file.name}": file for file in files}, []


def install_step(job: JobDescription) -> str | None:
    """The line of ma-pre-start.sh; `$here` is its directory."""
    plan = plan_agent(job)
    if not plan.wanted:
        return None
    script = f"{DIRECTORY}/{Path(install_agent.__file__).name}"
    return f'python "$here"/run/{script} {",".join(plan.extras)} || true'.replace("  ", " ")


def _requirements(job: JobDescription, plan: AgentPlan) -> list[Path]:
    """Wheels of everything that the extras need."""
    wanted = agent_wheel.requirements(plan.extras)
    if not wanted:
        return []
    if job.pre_start.agent_wheels:
        return sorted(Path(job.pre_start.agent_wheels).glob("*.whl"))
    extras = "-".join(plan.extras)
    root = cache_root() / "agent" / f"{agent_wheel.VERSION}-{extras}-py{plan.python}"
    found: dict[str, Path] = {}
    for machine in plan.machines:
        place = root / machine
        if not place.is_dir():
            with waiting_for(f"pip: wheels of Paceline's commands for Python {plan.python} on {machine}"):
                _download(wanted, plan.python, machine, place)
        found |= {file.name: file for file in sorted(place.glob("*.whl"))}
    return list(found.values())


def _download(wanted: Sequence[str], python: str, machine: str, place: Path) -> None:
    """All or nothing: the directory appears when it is complete."""
    if importlib.util.find_spec("pip") is None:
        raise _not_downloaded("this Python has no pip", python)
    partial = place.with_name(f".{machine}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    version = python.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", f"--dest={partial}"]
    command += [f"--abi={abi}" for abi in (f"cp{version}", "abi3", "none")]
    command += [f"--platform=manylinux_{glibc}_{machine}" for glibc in _GLIBC]
    command += [f"--platform=manylinux2014_{machine}"]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = re.findall(r"^ERROR: (.*)", done.stderr, re.MULTILINE) or done.stderr.strip().splitlines()
        raise _not_downloaded(f"pip: {errors[-1] if errors else 'failed'}", python)
    partial.replace(place)


def _not_downloaded(why: str, python: str) -> PacelineError:
    return PacelineError(
        f"wheels of Paceline's commands for the image's Python {python} could not be downloaded: {why}",
        hint="without a network: pre_start: {agent_wheels: DIRECTORY} with those wheels, {agent: []} for the part that "
        "needs only the standard library, or {agent: false} if the job does not import Paceline",
    )
