"""The cache directory, for data that can be made again: $PACELINE_CACHE, else ~/.cache/paceline."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path


def cache_root() -> Path:
    """$PACELINE_CACHE or ~/.cache/paceline, made for this user only: what was recorded on a private host stays private."""
    configured = os.environ.get("PACELINE_CACHE")
    if configured:
        with suppress(OSError):
            make_private(Path(configured))
        return Path(configured)
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    with suppress(OSError):  # who cannot change it reports it when something is written
        make_private(root)
        if root.stat().st_uid == os.getuid() and root.stat().st_mode & 0o077:
            root.chmod(0o700)  # made by an earlier version
    return root


def cache_part(name: str) -> Path:
    """A part of the cache that only this user can enter, also where $PACELINE_CACHE is a directory that others may read."""
    part = cache_root() / name
    with suppress(OSError):
        make_private(part)
    return part


def make_private(directory: Path) -> Path:
    """Create a directory that only this user can enter; one that exists keeps its rights."""
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def cache_name(text: str) -> str:
    """A short directory name for a URL: its last part, readable, plus a hash that makes it unique."""
    readable = "".join(c if c.isalnum() or c in "-_." else "_" for c in text.rstrip("/").rpartition("/")[2])[:40]
    return f"{readable or 'root'}-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
