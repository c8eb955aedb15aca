"""Docs stay true: tables, commands and readers are all described where users look."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from paceline.cli.main import COMMANDS, command_of
from paceline.formats.registry import readers

ROOT = Path(__file__).parents[2]


def test_tables_page_is_what_the_vocabulary_says() -> None:
    spec = importlib.util.spec_from_file_location("write_tables_doc", ROOT / "scripts" / "write_tables_doc.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "tables.md").read_text() == module.document(), "run scripts/write_tables_doc.py"


def test_every_command_is_in_the_pages_of_tasks_and_has_an_example() -> None:
    for name in COMMANDS:
        assert f"paceline {name}" in (ROOT / "docs" / "tasks.md").read_text()
        assert f"paceline {name}" in (ROOT / "docs" / "tasks.zh.md").read_text()
        command = command_of(name)
        functions = [each.callback for each in getattr(command, "registered_commands", ())] or [command]
        assert all("Example:" in (function.__doc__ or "") for function in functions), name


def test_every_reader_is_in_the_formats_page() -> None:
    for name in ("formats.md", "formats.zh.md"):
        page = (ROOT / "docs" / name).read_text()
        assert all(f"`{reader.name}`" in page for reader in readers())


def test_every_decision_has_a_number_and_a_title() -> None:
    for page in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        number = page.name.partition("-")[0]
        assert page.read_text().startswith(f"# {number} ")
