"""Read bench.yaml: which job, how often, at which sizes; checked before anything starts.

name: gpt2                  # its name in the history; default: the job's name
job: {…}                    # as in job.yaml (docs/jobs.md), or the path of one
repeat: 3                   # runs of every size
sweep: {ranks: [1, 2, 4]}   # sizes: processes per node; default: the job's ranks
accuracy: true              # whether the workload writes accuracy.json
results: ""                 # directory of the result files below the job's output
profile: {hyperparameters: {…}, source: profile}   # one more run of every size, profiled, not scored
baseline: RESULT.json       # result to compare with, see --baseline
expect: {throughput: 100}   # thresholds: PASS or FAIL (expectations.py)
workload: {tokens_per_sample: 1024, flops_per_sample: 6e12, peak_tflops: 320}   # for tokens/s per card and MFU
target_accuracy: 0.75       # for the time to quality
tester: config.json         # tester server to send results to, with system: system.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from paceline.bench.statistics.expectations import Expectations
from paceline.core.errors import UsageError
from paceline.jobs import JobDescription, YamlDocument
from paceline.jobs.description import Scalar, YamlMapping
from paceline.jobs.job_file import job_of

Repeats = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Sweep(YamlMapping, frozen=True):
    ranks: Annotated[tuple[Ranks, ...], msgspec.Meta(min_length=1, max_length=64)]
    scaling: Literal["weak", "strong"] = "weak"
    batch: str = ""
    """strong: the hyperparameter that is the batch of one rank, …"""
    global_batch: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """… and the batch of all ranks together."""


class MlperfLog(YamlMapping, frozen=True):
    """MLPerf's :::MLLOG lines of every run, in mllog/ of the benchmark's directory."""

    benchmark: str
    """One of MLPerf's names: bert, llama2_70b_lora, …"""
    org: str = "unknown"
    platform: str = ""
    status: str = "research"
    global_batch_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """These four where the workload does not report them in workload.json."""
    train_samples: Annotated[int, msgspec.Meta(ge=1)] | None = None
    eval_samples: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int | None = None


class Workload(YamlMapping, frozen=True):
    """What one sample is, for numbers that do not depend on the model's batch or on the machine."""

    tokens_per_sample: Annotated[float, msgspec.Meta(gt=0)] | None = None
    flops_per_sample: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Forward and backward."""
    peak_tflops: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Of one card, at the precision of the training."""


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
    expect: Expectations | None = None
    workload: Workload = Workload()
    target_accuracy: float | None = None
    mllog: MlperfLog | None = None


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
    expect: Expectations | None = None
    workload: Workload = Workload()
    target_accuracy: float | None = None
    sweep: Sweep | None = None
    mllog: MlperfLog | None = None


def load_bench_plan(path: Path) -> BenchPlan:
    """Errors name file and line."""
    document = YamlDocument.read(path)
    keys = document.convert(_BenchFile)
    here = path.absolute().parent
    job = job_of(YamlDocument.read(here / keys.job)) if isinstance(keys.job, str) else job_of(document.at("job"))
    _check_sweep(document, keys.sweep, job)
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
        expect=keys.expect,
        workload=keys.workload,
        target_accuracy=keys.target_accuracy,
        sweep=keys.sweep,
        mllog=keys.mllog,
    )


def _check_sweep(document: YamlDocument, sweep: Sweep | None, job: JobDescription) -> None:
    """Strong scaling divides one batch among all ranks: both are needed, and it has to divide."""
    if sweep is None or sweep.scaling == "weak":
        return
    if not sweep.batch or sweep.global_batch is None:
        raise UsageError(
            f"{document.where('sweep')}: strong scaling needs batch and global_batch",
            hint="sweep: {ranks: [1, 2, 4], scaling: strong, batch: batch_size, global_batch: 32}",
        )
    sizes = [msgspec.structs.replace(job, ranks=ranks).world_size for ranks in sweep.ranks]
    if odd := [str(size) for size in sizes if sweep.global_batch % size]:
        raise UsageError(
            f"{document.where('sweep')}: global_batch {sweep.global_batch} is not a multiple of {', '.join(odd)} ranks"
        )


def job_of_size(plan: BenchPlan, size: int) -> JobDescription:
    """The job with this many processes per node; with strong scaling, each with its part of the batch."""
    sweep, parameters = plan.sweep, dict(plan.job.hyperparameters)
    if sweep is not None and sweep.scaling == "strong" and sweep.global_batch is not None:
        parameters[sweep.batch] = sweep.global_batch // msgspec.structs.replace(plan.job, ranks=size).world_size
    return msgspec.structs.replace(plan.job, ranks=size, hyperparameters=parameters)
