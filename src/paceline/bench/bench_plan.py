"""Read bench.yaml: which job, how often, at which sizes; checked before anything starts.

name: gpt2                  # its name in the history; default: the job's name
job: {…}                    # as in job.yaml (docs/jobs.md), or the path of one
repeat: 3                   # runs of every size
sweep: {ranks: [1, 2, 4]}   # sizes: processes per node; default: the job's ranks
accuracy: true              # whether the workload writes accuracy.json
results: ""                 # directory of the result files below the job's output
profile: {hyperparameters: {…}, source: profile}   # one more run of every size, profiled, not scored
baseline: RESULT.json       # result to compare with, see --baseline
tester: config.json         # tester server to send results to, with system: system.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from paceline.jobs import JobDescription, YamlDocument
from paceline.jobs.description import Scalar, YamlMapping
from paceline.jobs.job_file import job_of

Repeats = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Sweep(YamlMapping, frozen=True):
    ranks: Annotated[tuple[Ranks, ...], msgspec.Meta(min_length=1, max_length=64)]


class ProfileRun(YamlMapping, frozen=True):
    """How a recorded run differs from a measured one."""

    hyperparameters: dict[str, Scalar] = msgspec.field(default_factory=dict)
    source: str = ""
    """Directory of the recording below the job's output."""


class _BenchFile(YamlMapping, frozen=True):
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


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
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


def load_bench_plan(path: Path) -> BenchPlan:
    """Errors name file and line."""
    document = YamlDocument.read(path)
    keys = document.convert(_BenchFile)
    here = path.absolute().parent
    job = job_of(YamlDocument.read(here / keys.job)) if isinstance(keys.job, str) else job_of(document.at("job"))
    return BenchPlan(
        file=path.absolute(),
        name=keys.name or job.job_name,
        job=job,
        repeat=keys.repeat,
        sizes=tuple(sorted(set(keys.sweep.ranks))) if keys.sweep else (job.ranks,),
        timeout_minutes=keys.timeout_minutes,
        accuracy=keys.accuracy,
        results=keys.results,
        profile=keys.profile,
        baseline=here / keys.baseline if keys.baseline else None,
        tester=here / keys.tester if keys.tester else None,
        system=here / keys.system if keys.system else None,
    )
