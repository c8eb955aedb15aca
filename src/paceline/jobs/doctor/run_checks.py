"""Run all checks in dependency order: what depends on a failed check is not tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from paceline.core.errors import PacelineError
from paceline.jobs.description import JobDescription
from paceline.jobs.doctor import cloud, machine, network
from paceline.jobs.doctor.check import Check, CheckVerdict, from_error, good
from paceline.jobs.job_file import load_job
from paceline.storage.cache_dir import cache_root


def run_checks(description: Path | None, backend: str | None = None) -> Iterator[Check]:
    """The machine first, then (with a description) everything its job uses."""
    job: JobDescription | None = None
    if description is not None:
        try:
            job = load_job(description, backend)
            yield good("description", "description", file=description, job=job.job_name, backend=job.backend)
        except PacelineError as error:
            yield from_error("description", error)
    yield from machine.versions(job)
    yield from machine.disks([Path.cwd(), cache_root(), Path("/cache") if Path("/cache").exists() else Path.cwd()])
    if job is None:
        return
    if job.backend == "slurm":
        yield from machine.slurm()
    yield from _remote_places(job)


def _remote_places(job: JobDescription) -> Iterator[Check]:
    """Names before connections, connections before requests."""
    try:
        places = cloud.buckets(job)
        endpoints = {access.endpoint for access, _ in places.values()}
        hosts, other = cloud.hosts_of(places), dict[str, str]()
        if job.backend == "modelarts":
            from paceline.jobs.modelarts.endpoint import endpoint_of

            endpoint = endpoint_of(job.modelarts)
            endpoints.add(endpoint)
            hosts[urlsplit(endpoint).hostname or ""] = endpoint
            other = cloud.other_hosts(job)
    except PacelineError as error:
        yield from_error("keys", error)
        return
    names = list(network.resolve(hosts | other, frozenset(other) - hosts.keys()))
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
    return any(check.verdict is CheckVerdict.bad for check in checks)
