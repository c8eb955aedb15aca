"""Where Paceline keeps what it can make again: $PACELINE_CACHE, else ~/.cache/paceline."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_root() -> Path:
    named = os.environ.get("PACELINE_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def cache_name(text: str) -> str:
    """A short directory name for a URL: readable, and unique by its hash."""
    readable = "".join(c if c.isalnum() or c in "-_." else "_" for c in text.rstrip("/").rpartition("/")[2])[:40]
    return f"{readable or 'root'}-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
