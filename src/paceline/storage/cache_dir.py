"""The cache directory, for data that can be made again: $PACELINE_CACHE, else ~/.cache/paceline."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_root() -> Path:
    configured = os.environ.get("PACELINE_CACHE")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def cache_name(text: str) -> str:
    """A short directory name for a URL: its last part, readable, plus a hash that makes it unique."""
    readable = "".join(c if c.isalnum() or c in "-_." else "_" for c in text.rstrip("/").rpartition("/")[2])[:40]
    return f"{readable or 'root'}-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
