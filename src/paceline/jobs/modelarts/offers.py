"""What a ModelArts offers, and whether a description asks for it: flavors, engines, dedicated pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from paceline.core.errors import UsageError
from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts.client import TrainingJobClient
from paceline.jobs.modelarts.engine_names import choose_engine
from paceline.storage.store_errors import StorageError, TransientError

T = TypeVar("T")


def as_offered(job: JobDescription, client: TrainingJobClient) -> tuple[JobDescription, list[str]]:
    """The job with the service's own engine name, and notes; raises where it asks for what is not offered.

    An account that may not list something is not refused for that.
    """
    notes: list[str] = []
    if job.flavor and not job.pool_id:
        _check("flavor", job.flavor, _listed(lambda: [each.id for each in client.flavors()]))
    if job.pool_id:
        pools = _listed(client.pools)
        _check("pool", job.pool_id, [name for each in pools for name in (each.id, each.name)])
    if job.engine is not None:
        found = choose_engine(job.engine, _listed(client.engines))
        if found != job.engine:
            notes.append(f"engine {job.engine.version} is {found.version} here")
            job = msgspec.structs.replace(job, engine=found)
    return job, notes


def _check(what: str, wanted: str, offered: list[str]) -> None:
    if offered and wanted not in offered:
        names = ", ".join(dict.fromkeys(offered))
        raise UsageError(
            f"{what} {wanted} is not offered by this ModelArts; there are: {names}",
            hint=f"paceline job {what}s lists them",
        )


def _listed(ask: Callable[[], list[T]]) -> list[T]:
    try:
        return ask()
    except TransientError:
        raise
    except StorageError:
        return []
