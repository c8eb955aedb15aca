"""Where batches are read: processes of this machine, or workers of a Dask or Ray cluster that somebody already runs.

An engine is one class in one module of this package, behind the Engine protocol; `engine_for` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from paceline.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Lost:
    """A task that took its worker down every time it was tried: nobody knows what it would have given."""

    reason: str = "every process that read it died (killed, or out of memory)"
    """The same whoever read: a store does not depend on the engine, its warnings neither."""


class Engine(Protocol):
    far: bool
    """Whether workers may run on other machines, which fetch for themselves what they read."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
        """Each task with what `work` gave for it, in any order. A dead worker's tasks are tried again elsewhere, a few
        times; an exception of `work` itself is raised here."""
        ...

    def close(self) -> None: ...


def engine_for(address: str | None, *, workers: int = 1) -> Engine:
    """dask://host:port, ray://host:port, or (None) processes of this machine."""
    if address is None or address == "local":
        from paceline.run.engines.processes import Processes

        return Processes(workers)
    scheme, _, where = address.partition("://")
    if scheme == "dask" and where:
        from paceline.run.engines.on_dask import OnDask

        return OnDask(address)
    if scheme == "ray" and where:
        from paceline.run.engines.on_ray import OnRay

        return OnRay(address)
    raise UsageError(f"{address}: no such engine", hint="local, dask://host:8786 or ray://host:10001")
