"""Checks for all clusters: the address is reachable, and workers have the same version of Paceline as this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from paceline.core.errors import PacelineError, UsageError
from paceline.core.version import __version__
from paceline.run.tables.store import READ_VERSION

T = TypeVar("T")
R = TypeVar("R")

CONNECT_TIMEOUT_S = 10.0
OUR_VERSION = (__version__, READ_VERSION)


def check_reachable(address: str) -> None:
    """Fail within seconds: the clients of Dask and Ray wait half a minute, or for ever, for an address without a server."""
    try:
        host, port = urlsplit(address).hostname, urlsplit(address).port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise UsageError(f"{address}: host or port is missing", hint="for example dask://host:8786 or ray://host:10001")
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise PacelineError(
            f"could not connect to {address} ({error.strerror or error})",
            hint="check that it is running and that its port can be reached from this machine",
        ) from error


def run_checked(work: Callable[[T], R], version: tuple[str, int], task: T) -> R:
    """Runs on a worker."""
    check_version(version)
    return work(task)


def check_version(theirs: tuple[str, int]) -> None:
    """Workers of another version would silently read other tables."""
    if tuple(theirs) != OUR_VERSION:
        raise PacelineError(
            f"Paceline {theirs[0]} (tables {theirs[1]}) and {OUR_VERSION[0]} (tables {OUR_VERSION[1]}) cannot work together",
            hint="install the same version on this machine and on all workers",
        )


def cannot_run(address: str, error: Exception) -> PacelineError:
    """The workers cannot import the task they were sent."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return PacelineError(
        f"{address}: its workers cannot run Paceline ({lines[-1].strip()[:200]})",
        hint=f"install paceline {__version__} on all machines of the cluster",
    )
