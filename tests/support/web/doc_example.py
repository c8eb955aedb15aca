"""The worked example of docs/add-a-page.md, applied to a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs/add-a-page.md"
_BLOCK = re.compile(r"^`([^`\n]+)`\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copy_sources(target: Path) -> None:
    """The package and the UI, without what was built from them."""
    for name in ("src/paceline", "ui"):
        ignored = shutil.ignore_patterns("static", "node_modules", "__pycache__")
        shutil.copytree(REPOSITORY / name, target / name, ignore=ignored)
    (target / "ui/node_modules").symlink_to((REPOSITORY / "ui/node_modules").resolve())


def apply_example(target: Path) -> list[str]:
    """Write every file and make every change that the page shows, in its order; returns the names of the files."""
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for name, kind, content in blocks:
        path = target / name
        if kind == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), content), encoding="utf-8")
        else:
            assert not path.exists(), f"{name} exists already"
            path.write_text(content, encoding="utf-8")
    return [name for name, _, _ in blocks]


def changed(text: str, diff: str) -> str:
    """The text with one change; the lines the change shows must occur in it exactly once."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1, f"{text.count(before)} places match:{os.linesep}{before}"
    return text.replace(before, after)
