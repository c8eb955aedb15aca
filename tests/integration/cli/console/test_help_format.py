"""--help: whole sentences, by task, and examples that can be copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import typer
from typer.testing import CliRunner

import paceline
from paceline.cli.console.help_format import TASKS
from paceline.cli.main import COMMANDS, application, command_of


def help_of(*words: str) -> str:
    result = CliRunner().invoke(application(), [*words, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def test_every_command_is_listed_once_with_a_whole_sentence() -> None:
    text = help_of()
    for name in COMMANDS:
        assert len([line for line in text.splitlines() if line.startswith(f"  {name} ")]) == 1
    assert "..." not in text.partition("Options:")[2]
    assert all(f"{task}:" in text for task in TASKS)


def test_the_version_is_told_without_a_command() -> None:
    result = CliRunner().invoke(application(()), ["--version"])
    assert (result.exit_code, result.output) == (0, f"paceline {paceline.__version__}\n")


def test_examples_stand_on_lines_of_their_own_unbroken() -> None:
    for words, function in commands():
        example = (function.__doc__ or "").partition("Example:")[2].strip().splitlines()[0].strip()
        assert example in help_of(*words), words


def commands() -> Iterator[tuple[tuple[str, ...], Callable[..., object]]]:
    for name in COMMANDS:
        command = command_of(name)
        if not isinstance(command, typer.Typer):
            yield (name,), command
            continue
        for each in command.registered_commands:
            assert each.callback is not None
            yield (name, each.name or each.callback.__name__.strip("_").replace("_", "-")), each.callback
