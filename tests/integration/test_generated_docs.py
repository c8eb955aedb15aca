"""Pages that scripts write are what the scripts would write now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_architecture_page_shows_the_imports_as_they_are() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page == script("write_architecture_graph").with_generated(page), "run scripts/write_architecture_graph.py"


def test_every_decision_is_in_the_index() -> None:
    page = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert page == script("write_decisions_index").index(), "run scripts/write_decisions_index.py"
