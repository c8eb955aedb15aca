"""A package installed for one test: its module and the metadata of its entry points in a folder on sys.path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline.core import plugins


def install_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, code: str, group: str, entries: Mapping[str, str]
) -> None:
    """`entries` are entry points by name, e.g. {"cold-cards": "toy_rules:cold_cards"}; `code` becomes the module `name`."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    # Not cached during the test, so that this package is found now and forgotten afterwards.
    monkeypatch.setattr(plugins, "_registered", plugins._registered.__wrapped__)
