"""A limit on address space (ulimit -v, some batch systems) that is too low ends native threads in a crash without a word."""

from __future__ import annotations

import os
import resource

from paceline.core.errors import PacelineError

_NEEDED = 900_000_000
"""Bytes to import and start the database engine."""
_PER_THREAD = 75_000_000
"""Its stack and its share of the heap; the engine starts a thread per core."""


def check_address_space() -> None:
    """Refuse to start where the address space is too small to read anything."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = needed_address_space(os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise PacelineError(
            f"the address space is limited to {limit / 1e6:,.0f} MB, and {needed / 1e6:,.0f} MB are needed",
            hint="raise the limit: ulimit -v unlimited",
        )


def needed_address_space(cores: int) -> int:
    """
    >>> needed_address_space(2)
    1050000000
    """
    return _NEEDED + _PER_THREAD * cores
