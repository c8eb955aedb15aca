"""What all clusters have in common: an address that answers, and workers with the same Paceline as ours."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from paceline.errors import PacelineError, UsageError
from paceline.run.store import READ_VERSION
from paceline.version import __version__

T = TypeVar("T")
R = TypeVar("R")

ANSWERS_WITHIN = 10.0
"""Seconds."""
OURS = (__version__, READ_VERSION)


def check_answers(address: str) -> None:
    """Clients of Dask and Ray take half a minute, or for ever, to find out that nobody is there."""
    try:
        host, port = urlsplit(address).hostname, urlsplit(address).port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise UsageError(f"{address}: no host and port", hint="dask://host:8786 or ray://host:10001")
    try:
        socket.create_connection((host, port), timeout=ANSWERS_WITHIN).close()
    except OSError as error:
        raise PacelineError(
            f"{address}: nobody answers ({error.strerror or error})", hint="is it running, and its port open from here?"
        ) from error


def run_checked(work: Callable[[T], R], version: tuple[str, int], task: T) -> R:
    """On a worker."""
    check_version(version)
    return work(task)


def check_version(theirs: tuple[str, int]) -> None:
    """Other versions read other tables, and nobody would notice."""
    if tuple(theirs) != OURS:
        raise PacelineError(
            f"Paceline {theirs[0]} (tables {theirs[1]}) and {OURS[0]} (tables {OURS[1]}) cannot work together",
            hint="install the same version on this machine and on all workers",
        )


def cannot_run(address: str, error: Exception) -> PacelineError:
    """The cluster does not know what it was sent."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    return PacelineError(
        f"{address}: it cannot run Paceline ({said[-1].strip()[:200]})",
        hint=f"install paceline {__version__} in the Python of all its machines",
    )
