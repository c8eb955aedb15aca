"""Every `paceline …` line in the READMEs and the documentation is a command that exists, with options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from paceline.cli.main import PASS_ON, application

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in PAGES if "decisions" not in path.parts]
ROOT_COMMAND: Any = typer.main.get_command(application())


def command_lines(text: str) -> Iterator[str]:
    """Lines of code blocks, continued ones in one; comments are left out."""
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        found = re.match(r"(?: {4,}|\$ )?(?:sudo |srun )?(paceline .*)", line)
        if found and (line.startswith(" ") or line.startswith("paceline")):
            yield re.split(r"\s+# |\s#\s|；", found[1])[0].strip()


def words_of(line: str) -> list[str] | None:
    """As a shell splits them, up to a pipe or a second command; None for prose."""
    try:
        words = shlex.split(line.replace("…", "x"))
    except ValueError:
        return None
    end = next((n for n, word in enumerate(words) if word in ("|", "&&", "||", "&", ">", "+", "→")), len(words))
    return words[1:end]


def unknown(words: list[str]) -> list[str]:
    """Subcommands and options that do not exist."""
    command, options = ROOT_COMMAND, _options(ROOT_COMMAND)
    rest = list(words)
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return [rest[0]]
        command = command.commands[rest.pop(0)]
        options |= _options(command)
    if command.name in PASS_ON or command.name in ("msadvisor",):
        return []
    named = (word.partition("=")[0] for word in rest)
    return [word for word in named if re.fullmatch(r"--[a-z][\w-]*|-[a-zA-Z]", word) and word not in options]


def _options(command: Any) -> set[str]:
    return {"--help"} | {name for param in command.params for name in [*param.opts, *param.secondary_opts]}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(path: Path) -> None:
    wrong = []
    for line in command_lines(path.read_text(encoding="utf-8")):
        words = words_of(line)
        if words and (found := unknown(words)):
            wrong.append((line, found))
    assert wrong == []


def test_wrong_ones_are_found() -> None:
    assert unknown(["diagnoze", "runs"]) == ["diagnoze"]
    assert unknown(["job", "submitt"]) == ["submitt"]
    assert unknown(["diagnose", "runs", "--topp", "3"]) == ["--topp"]
    assert unknown(["diagnose", "runs", "--top", "3", "-o", "x"]) == []
    lines = list(command_lines("    paceline show a  # all\npaceline ls \\\n  b\nprose: paceline x"))
    assert lines == ["paceline show a", "paceline ls b"]
