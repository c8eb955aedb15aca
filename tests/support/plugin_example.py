"""The worked examples of docs/add-a-reader.md and docs/add-a-rule.md as files, installed for a test."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tomllib

from paceline.core import plugins
from paceline.formats import registry

PAGE = Path(__file__).parents[2] / "docs" / "add-a-reader.md"
_FILE = re.compile(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_example(directory: Path, page: Path = PAGE) -> None:
    """Every file that the page shows, under the name above it."""
    for name, content in _FILE.findall(page.read_text(encoding="utf-8")):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@contextmanager
def installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A project's packages and entry points on sys.path, as pip would install them."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    metadata = project / "src" / f"{described['name']}-{described['version']}.dist-info"
    metadata.mkdir()
    groups = described["entry-points"].items()
    text = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items()) for group, entries in groups
    )
    (metadata / "entry_points.txt").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(project / "src"))
    _forget_plugins()
    try:
        yield
    finally:
        monkeypatch.undo()
        _forget_plugins()
        for name in [name for name in sys.modules if name.partition(".")[0] == described["name"]]:
            del sys.modules[name]


def _forget_plugins() -> None:
    plugins._registered.cache_clear()
    registry.formats.cache_clear()
