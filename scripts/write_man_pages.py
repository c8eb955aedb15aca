"""Write a manual page of every command to build/man/man1 (`make man`): the text of --help, as man shows it.

man -M build/man paceline-diagnose
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from paceline.cli.console.help_format import plain_help
from paceline.cli.main import application
from paceline.core.version import __version__

TARGET = Path(__file__).parents[1] / "build" / "man" / "man1"


def pages() -> dict[str, str]:
    """File name → content."""
    return {f"{'-'.join(path)}.1": page(path, each) for path, each in _commands(("paceline",), _root())}


def page(path: tuple[str, ...], command: Any) -> str:
    text = plain_help(command.help)
    summary, _, more = text.partition("\n\n")
    name = "-".join(path)
    parts = [
        f'.TH "{name.upper()}" 1 "" "paceline {__version__}"\n.SH NAME\n{_plain(name)} \\- {_plain(summary)}\n',
        f".SH SYNOPSIS\n.B {_plain(' '.join(path))}\n[OPTIONS] {' '.join(_arguments(command))}\n",
        f".SH DESCRIPTION\n{_plain(more or summary)}\n",
        _section("COMMANDS", ((name, each.help) for name, each in getattr(command, "commands", {}).items())),
        _section("ARGUMENTS AND OPTIONS", ((_names(param), getattr(param, "help", None)) for param in command.params)),
    ]
    if example := (command.help or "").partition("Example:")[2].strip():
        parts.append(f".SH EXAMPLE\n.nf\n{_plain(example)}\n.fi\n")
    return "".join(parts)


def _root() -> Any:
    return typer.main.get_command(application())


def _commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands((*path, name), each)


def _section(title: str, rows: Iterator[tuple[str, str | None]]) -> str:
    body = "".join(f".TP\n.B {_plain(name)}\n{_plain(plain_help(about))}\n" for name, about in rows)
    return f".SH {title}\n{body}" if body else ""


def _names(param: Any) -> str:
    return ", ".join([*param.opts, *param.secondary_opts]) if param.param_type_name == "option" else param.name.upper()


def _arguments(command: Any) -> list[str]:
    return [param.name.upper() for param in command.params if param.param_type_name == "argument"]


def _plain(text: str) -> str:
    """Text that roff does not read as commands."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line.strip()}" if line.strip()[:1] in (".", "'") else line.strip() for line in lines)


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (TARGET / name).write_text(content, encoding="utf-8")
