"""Names of archives and compressed files."""

from __future__ import annotations

from collections.abc import Callable

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2")
COMPRESSED = (".zst", ".gz", ".xz", ".bz2")
"""Of single files."""

Needed = Callable[[str], bool]
"""Whether a file is wanted, by its path below the root."""


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def inner_name(name: str) -> str | None:
    """trace.json.zst → trace.json"""
    return next((name[: -len(end)] for end in COMPRESSED if name.lower().endswith(end)), None)
