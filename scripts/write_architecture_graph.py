"""Writes the package table and the dependency graph of docs/architecture.md, from the imports themselves.

python scripts/write_architecture_graph.py
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PARTS = {
    "understand": ("formats", "run", "metrics", "replay", "diagnosis", "output", "web"),
    "train": ("checkpoint", "recorder", "profiling", "training", "integrations"),
    "operate": ("collect", "watch", "jobs", "bench"),
    "base": ("core", "storage"),
}
ALONE = ("simulate", "cli")
"""Packages outside the three parts: the simulator, which knows nothing of the rest, and the commands, which know all of it."""


def imports() -> dict[str, dict[str, int]]:
    """Package → package it imports → number of module imports."""
    graph = grimp.build_graph("paceline", include_external_packages=False, cache_dir=None)
    counted: dict[str, dict[str, int]] = {}
    for module in graph.modules:
        importer = _package(module)
        for imported in graph.find_modules_directly_imported_by(module):
            package = _package(imported)
            if importer and package and importer != package:
                row = counted.setdefault(importer, {})
                row[package] = row.get(package, 0) + 1
    return counted


def _package(module: str) -> str | None:
    name = module.split(".")[1] if "." in module else None
    return name if name and (ROOT / "src" / "paceline" / name).is_dir() else None


def check_packages() -> None:
    """A package that no part names would be missing from the page."""
    packages = {path.parent.name for path in (ROOT / "src" / "paceline").glob("*/__init__.py")}
    named = {package for part in PARTS.values() for package in part} | set(ALONE)
    if packages != named:
        raise SystemExit(f"PARTS and ALONE of {Path(__file__).name} do not fit: {sorted(packages ^ named)}")


def table(counted: dict[str, dict[str, int]]) -> str:
    rows = ["| part | package | what it holds | imports |", "|---|---|---|---|"]
    for part, packages in (*PARTS.items(), ("", ALONE)):
        for package in packages:
            used = ", ".join(sorted(counted.get(package, {})))
            rows.append(f"| {part} | `{package}` | {_first_line(package)} | {used or 'nothing'} |")
    return "\n".join(rows)


def _first_line(package: str) -> str:
    text = (ROOT / "src" / "paceline" / package / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def diagram(counted: dict[str, dict[str, int]]) -> str:
    """Mermaid; edges to core are left out, because everything has one."""
    lines = ["```mermaid", "graph RL"]
    for part, packages in PARTS.items():
        lines += [f"  subgraph {part}", *(f"    {package}" for package in packages), "  end"]
    shown = [name for packages in PARTS.values() for name in packages]
    for importer in shown:
        for imported in sorted(counted.get(importer, {})):
            if imported != "core" and imported in shown:
                lines.append(f"  {importer} --> {imported}")
    return "\n".join([*lines, "```"])


def with_generated(page: str) -> str:
    check_packages()
    counted = imports()
    return _replaced(_replaced(page, "packages", table(counted)), "graph", diagram(counted))


def _replaced(page: str, name: str, content: str) -> str:
    """The page with the content between its two marks exchanged."""
    begin, end = f"<!-- {name}: written by scripts/write_architecture_graph.py -->", f"<!-- end of {name} -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{content}\n{end}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
