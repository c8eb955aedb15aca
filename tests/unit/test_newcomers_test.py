"""The newcomer's test (docs/newcomers-test.md) is about modules as they are today."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (ROOT / "docs/newcomers-test.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]


def test_forty_modules_were_asked_for() -> None:
    assert len({module for module, _, _ in ROWS}) == 40


@pytest.mark.parametrize(("module", "guess", "docstring"), ROWS, ids=[row[0] for row in ROWS])
def test_a_module_still_holds_what_the_newcomer_found_in_it(module: str, guess: str, docstring: str) -> None:
    path = ROOT / "src/paceline" / module.strip("`")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert guess and text.splitlines()[0].replace("|", "/") == docstring
