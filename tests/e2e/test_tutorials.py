"""The tutorials and the gallery, followed in an empty directory: every command ends well, and shows what the page says.

The Chinese page of a tutorial has the same commands, but for the language.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = (f"tutorials/{path.name}" for path in (DOCS / "tutorials").glob("*.md") if not path.name.endswith(".zh.md"))
ENGLISH = ["gallery.md", *sorted(TUTORIALS)]
_BLOCK = re.compile(
    r'```(?P<kind>sh|(?:python|yaml) title="(?P<file>[\w./]+)")\n(?P<code>.*?)```|<!-- shows: (?P<shown>.*?) -->',
    re.DOTALL,
)


def test_there_are_tutorials() -> None:
    assert ENGLISH


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", ENGLISH)
def test_the_tutorial_works_as_written(name: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PACELINE_CACHE": str(tmp_path / "cache"),
        "PACELINE_STATE": str(tmp_path / "state"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    work = tmp_path / "work"
    work.mkdir()
    output = ""
    for block in _BLOCK.finditer((DOCS / name).read_text(encoding="utf-8")):
        if block["file"]:
            (work / block["file"]).write_text(block["code"], encoding="utf-8")
        elif block["kind"]:
            done = subprocess.run(
                ["bash", "-ec", block["code"]], cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{block['code']}\n{done.stdout}{done.stderr}"
            output = done.stdout + done.stderr
        else:
            assert block["shown"] in output


@pytest.mark.parametrize("name", ENGLISH)
def test_the_chinese_page_has_the_same_commands(name: str) -> None:
    assert _commands(name.replace(".md", ".zh.md")) == _commands(name)


def _commands(name: str) -> list[str]:
    page = (DOCS / name).read_text(encoding="utf-8")
    return [block["code"].replace(" --lang zh", "") for block in _BLOCK.finditer(page) if block["kind"] == "sh"]
