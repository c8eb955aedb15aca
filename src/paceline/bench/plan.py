"""bench.yaml: what is run, how often, at which sizes; checked before anything starts.

name: gpt2                  # what history calls it; default: the job's name
job: {…}                    # as in job.yaml (docs/jobs.md), or the path of one
repeat: 3                   # runs of every size
sweep: {ranks: [1, 2, 4]}   # sizes: processes per node; default: the job's own
accuracy: true              # whether the workload writes accuracy.json
results: ""                 # where below the job's output the result files are
profile: {hyperparameters: {…}, source: profile}   # one more run of every size, recorded, not scored
baseline: RESULT.json       # compared with, see --baseline
tester: config.json         # where results are sent; system: system.json goes along
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from paceline.jobs import Document, JobDescription
from paceline.jobs.description import Scalar, Section, job_of

Repeats = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Sweep(Section, frozen=True):
    ranks: Annotated[tuple[Ranks, ...], msgspec.Meta(min_length=1, max_length=64)]


class ProfileRun(Section, frozen=True):
    """How a recorded run differs from a measured one."""

    hyperparameters: dict[str, Scalar] = msgspec.field(default_factory=dict)
    source: str = ""
    """Where below the job's output the recording is."""


class _File(Section, frozen=True):
    """The keys of bench.yaml."""

    job: JobDescription | str
    name: str = ""
    repeat: Repeats = 1
    sweep: Sweep | None = None
    timeout_minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    accuracy: bool = True
    results: str = ""
    profile: ProfileRun | None = None
    baseline: str = ""
    tester: str = ""
    system: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark, ready to run; paths are absolute."""

    file: Path
    name: str
    job: JobDescription
    repeat: int
    sizes: tuple[int, ...]
    """Processes per node, ascending."""
    timeout_minutes: float | None
    accuracy: bool
    results: str
    profile: ProfileRun | None
    baseline: Path | None
    tester: Path | None
    system: Path | None


def load_plan(path: Path) -> Plan:
    """What is wrong is said with file and line."""
    document = Document.read(path)
    said = document.convert(_File)
    here = path.absolute().parent
    job = job_of(Document.read(here / said.job)) if isinstance(said.job, str) else job_of(document.at("job"))
    return Plan(
        file=path.absolute(),
        name=said.name or job.job_name,
        job=job,
        repeat=said.repeat,
        sizes=tuple(sorted(set(said.sweep.ranks))) if said.sweep else (job.ranks,),
        timeout_minutes=said.timeout_minutes,
        accuracy=said.accuracy,
        results=said.results,
        profile=said.profile,
        baseline=here / said.baseline if said.baseline else None,
        tester=here / said.tester if said.tester else None,
        system=here / said.system if said.system else None,
    )
