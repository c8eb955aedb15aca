"""--help in Chinese under a Chinese locale: texts of core/texts/help.json, wrapped by their width on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.core.i18n import catalogue

_COLUMN = 30
"""Options and commands that are longer have their text on the next line, as in English."""


def in_chinese() -> bool:
    return resolve_language(LanguageOption.auto) == "zh"


def translated(english: str) -> str:
    """The Chinese text of a help text or heading; one that a plug-in or a library wrote stays as it is."""
    return _by_english().get(english, english)


def chinese_help(command: Any, ctx: Any) -> str:
    """The help of a command (typer.core's or click's: the class depends on Typer's version)."""
    for param in command.get_params(ctx):
        param.help = translated(getattr(param, "help", None) or "") or None
    formatter = ctx.make_formatter()
    write_heading, write_usage = formatter.write_heading, formatter.write_usage
    formatter.write_heading = lambda heading: write_heading(translated(heading))
    formatter.write_usage = lambda program, arguments="", prefix=None: write_usage(program, arguments, "用法：")
    formatter.write_dl = partial(_write_definitions, formatter)
    formatter.write_text = partial(_write_text, formatter)
    command.format_help(ctx, formatter)
    text: str = formatter.getvalue()
    return text.rstrip("\n")


@lru_cache(maxsize=None)
def _by_english() -> dict[str, str]:
    return {texts["en"]: texts["zh"] for texts in catalogue("help").values()}


def _write_text(formatter: Any, text: str) -> None:
    margin = " " * formatter.current_indent
    for number, paragraph in enumerate(text.split("\n\n")):
        formatter.write("\n" if number else "")
        _write_lines(formatter.write, paragraph.replace("\n", " "), formatter.width, margin, margin)


def _write_definitions(formatter: Any, rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    widest = max((len(name) for name, _ in rows if len(name) <= _COLUMN), default=_COLUMN)
    margin = " " * formatter.current_indent
    rest = margin + " " * (widest + 2)
    for name, text in rows:
        first = f"{margin}{name:<{widest + 2}}"
        if len(name) > widest:
            formatter.write(f"{first.rstrip()}\n")
            first = rest
        _write_lines(formatter.write, text, formatter.width, first, rest)


def _write_lines(write: Callable[[str], None], text: str, width: int, first: str, rest: str) -> None:
    from paceline.cli.console.text_width import indented  # loads Rich's tables of widths, for this page only

    for line in indented(text, width, first=first, rest=rest):
        write(f"{line.rstrip()}\n")
