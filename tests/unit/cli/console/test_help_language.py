"""--help in Chinese: every text of every command has its Chinese, and nothing is wider than the screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from paceline.cli.console.help_format import START, TASKS, plain_help
from paceline.cli.console.help_language import translated
from paceline.cli.main import application
from paceline.core.i18n import catalogue

CHINESE = {"LC_ALL": "zh_CN.UTF-8", "COLUMNS": "80"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


ALL = dict(commands(typer.main.get_command(application())))


def help_texts() -> set[str]:
    """All English texts of --help, as the program has them."""
    texts = {*TASKS, *START, "Other", "Commands", "Options", "Arguments", "Start here", "Show this message and exit."}
    for command in ALL.values():
        texts.add(plain_help(command.help))
        texts.update(param.help for param in command.params if getattr(param, "help", None))
    return texts


def test_every_help_text_is_in_the_catalogue_and_no_other() -> None:
    """A text that was changed or added needs its Chinese in core/texts/help.json."""
    assert help_texts() - {texts["en"] for texts in catalogue("help").values()} == set()
    assert {texts["en"] for texts in catalogue("help").values()} - help_texts() == set()


def test_an_unknown_text_stays_as_it_is() -> None:
    assert translated("A command of a plug-in.") == "A command of a plug-in."


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_chinese_help_fits_the_screen_and_keeps_its_example(path: tuple[str, ...]) -> None:
    command = ALL[path]
    shown = CliRunner().invoke(application(path[:1] or ()), [*path, "--help"], env=CHINESE)
    assert shown.exit_code == 0, shown.output
    assert "显示本帮助并退出。" in shown.output
    example = (command.help or "").partition("Example:")[2].strip().splitlines()
    assert not example or example[0].strip() in shown.output
    head, _, _ = shown.output.partition("Example:")
    assert not [line for line in head.splitlines()[2:] if cell_len(line) > 80 and " " not in line.strip()]


def test_english_help_is_english() -> None:
    shown = CliRunner().invoke(application(("show",)), ["show", "--help"], env={"LC_ALL": "en_US.UTF-8"})
    assert "Show the content of a profile" in shown.output
    assert shown.output.isascii() or "…" in shown.output
