"""The sources of the UI: folders import in one direction, every text is used, the report uses only the texts it is built with."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.core.i18n import catalogue

UI = Path(__file__).parents[3] / "ui/src"
LITERAL = re.compile(r'"(ui\.[^"]+)"')
# `ui.column.${name}`: any text below that prefix may be meant.
TEMPLATE = re.compile(r"`(ui\.[\w.-]*)\$\{")
IMPORT = re.compile(r'from "(\.[^"]+)"')


LAYERS = (("api", "i18n", "style"), ("charts",), ("components",), ("sections",), ("pages",), ("report",))
"""A folder imports from itself and from those before it; pages and report do not import each other."""


def sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in UI.rglob("*.ts*")}


def imported(path: Path, code: dict[Path, str]) -> list[Path]:
    bases = [(path.parent / name).resolve() for name in IMPORT.findall(code[path])]
    return [
        found for base in bases for suffix in (".ts", ".tsx") if (found := base.with_name(base.name + suffix)) in code
    ]


def test_folders_import_in_one_direction() -> None:
    layer = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
    code = sources()
    folder = {path: path.relative_to(UI).parts[0] for path in code}
    assert set(folder.values()) == set(layer)
    wrong = [
        f"{path.relative_to(UI)} imports {other.relative_to(UI)}"
        for path in code
        for other in imported(path, code)
        if layer[folder[other]] > layer[folder[path]] or (folder[path], folder[other]) == ("report", "pages")
    ]
    assert wrong == []


def test_every_text_is_used() -> None:
    code = "\n".join(sources().values())
    named, prefixes = set(LITERAL.findall(code)), tuple(set(TEMPLATE.findall(code)))
    unused = [key for key in catalogue("ui") if key not in named and not key.startswith(prefixes)]
    assert unused == []


def test_the_report_uses_no_text_of_the_server_pages() -> None:
    code = sources()
    reached, waiting = set[Path](), [UI / "report/main.tsx"]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        waiting += imported(path, code)
    assert UI / "i18n/text.ts" in reached
    used = {path: LITERAL.findall(code[path]) + TEMPLATE.findall(code[path]) for path in reached}
    assert {str(path): keys for path, keys in used.items() if any(key.startswith("ui.web.") for key in keys)} == {}
