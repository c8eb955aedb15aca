"""The ring as files that other tools know."""

from __future__ import annotations

from pathlib import Path


def export(segments: list[Path], directory: Path) -> None:
    pass
