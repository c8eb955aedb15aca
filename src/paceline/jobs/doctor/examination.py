"""All checks in the order in which they make sense: what stands on something broken is not asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from paceline.errors import PacelineError
from paceline.jobs.description import BackendName, JobDescription, load_job
from paceline.jobs.doctor import cloud, machine, network
from paceline.jobs.doctor.check import Check, Verdict, good, of_error
from paceline.storage.access import find_cloud_access
from paceline.storage.cache import cache_root


def examine(description: Path | None, backend: BackendName | None = None) -> Iterator[Check]:
    """The machine first, then (with a description) everything its job will touch."""
    job: JobDescription | None = None
    if description is not None:
        try:
            job = load_job(description, backend)
            yield good(
                "description",
                f"{description}: {job.job_name} on {job.backend}",
                f"{description}：{job.job_name}（{job.backend}）",
            )
        except PacelineError as error:
            yield of_error("description", error)
    yield from machine.versions(job)
    yield from machine.disks([Path.cwd(), cache_root(), Path("/cache") if Path("/cache").exists() else Path.cwd()])
    if job is None:
        return
    if job.backend == "slurm":
        yield from machine.slurm()
    yield from _places(job)


def _places(job: JobDescription) -> Iterator[Check]:
    """Names before connections, connections before requests."""
    try:
        places = cloud.buckets(job)
        endpoints = {access.endpoint for access, _ in places.values()}
        hosts = cloud.hosts_of(places)
        if job.backend == "modelarts":
            from paceline.jobs.modelarts.place import endpoint_of

            endpoint = endpoint_of(job.modelarts, find_cloud_access())
            endpoints.add(endpoint)
            hosts[urlsplit(endpoint).hostname or ""] = endpoint
    except PacelineError as error:
        yield of_error("keys", error)
        return
    names = list(network.resolve(hosts))
    yield from names
    if _any_bad(names):
        return
    answers = [check for url in sorted(endpoints) for check in network.reach(url)]
    yield from answers
    if _any_bad(answers):
        return
    yield from cloud.try_buckets(places)
    if job.backend == "modelarts":
        yield from cloud.modelarts(job)


def _any_bad(checks: list[Check]) -> bool:
    return any(check.verdict is Verdict.bad for check in checks)
