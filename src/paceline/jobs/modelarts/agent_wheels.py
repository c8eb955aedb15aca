"""Paceline for a job's container: the agent wheel, and wheels of what its commands need, for the image's Python.

They are uploaded into run/paceline-agent and installed there by ma-pre-start.sh without a network (install_agent.py).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.core import agent_wheel
from paceline.core.errors import PacelineError
from paceline.core.waiting import waiting_for
from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts import install_agent
from paceline.jobs.offline_wheels import SOURCE_ONLY, accepted_platforms, build_source_only, download_wheels
from paceline.storage.cache_dir import cache_part

DIRECTORY = "paceline-agent"
"""Below run/, beside the boot file."""
MACHINES = ("aarch64", "x86_64")
_PYTHON = re.compile(r"(?:py_|python_?)(\d+\.\d+)", re.IGNORECASE)
_PLATFORM = "manylinux_2_28"
"""EulerOS, openEuler and Ubuntu images of ModelArts have this C library or a newer one."""


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
    root = cache_part("agent") / f"{agent_wheel.VERSION}-{extras}-py{plan.python}"
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
    partial = place.with_name(f".{machine}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        if any(requirement.startswith(SOURCE_ONLY) for requirement in wanted):
            build_source_only(SOURCE_ONLY, partial)
        download_wheels(wanted, python, accepted_platforms(f"{_PLATFORM}_{machine}"), partial, find_links=partial)
    except PacelineError as error:
        raise _not_downloaded(str(error), python) from error
    partial.replace(place)


def _not_downloaded(why: str, python: str) -> PacelineError:
    return PacelineError(
        f"wheels of Paceline's commands for the image's Python {python} could not be downloaded: {why}",
        hint="without a network: pre_start: {agent_wheels: DIRECTORY} with those wheels, {agent: []} for the part that "
        "needs only the standard library, or {agent: false} if the job does not import Paceline",
    )
