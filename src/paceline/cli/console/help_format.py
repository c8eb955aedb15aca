"""Format of --help: commands grouped by task with their first sentence, and examples that can be copied."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

from paceline.cli.console.help_language import chinese_help, in_chinese, translated

TASKS = {
    "Find what is slow": ("diagnose", "breakdown", "what-if", "compare", "serve", "watch", "kb"),
    "Look at the data": ("show", "sql", "export", "index", "schema"),
    "Transfer data": ("ls", "copy", "sync", "slim", "collect"),
    "Record": ("profile", "run-profiled", "hccl-parser"),
    "Train and run jobs": ("train", "launch", "rank-table", "job", "doctor", "bench", "checkpoint"),
}
"""Commands that are in no group are listed under "Other"."""
START = {
    "You have profiles or traces: find what is slow.": "paceline diagnose DIRECTORY",
    "You have several runs: look at them in the browser.": "paceline serve DIRECTORY",
    "A job is running: watch it, or record some of its steps.": "paceline watch, paceline profile now",
    "You want to start a job and measure it.": "paceline job submit, paceline bench run",
    "You have nothing yet: see a diagnosis of a simulated cluster.": "paceline demo",
}
"""What a user may have, and the command to start with."""
WIDTH = 110


class Command(TyperCommand):
    def get_help(self, ctx: Any) -> str:
        return chinese_help(self, ctx) if in_chinese() else super().get_help(ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        _, _, examples = (self.help or "").partition("Example:")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_in_language(self.help))
        # Not wrapped: a broken line cannot be copied.
        for line in filter(None, map(str.strip, f"Example:{examples}".splitlines() if examples else ())):
            lead = "" if line.startswith("Example:") else " " * len("Example:  ")
            formatter.write(f"{'' if lead else chr(10)}  {lead}{line}\n")


class Commands(TyperGroup):
    def get_help(self, ctx: Any) -> str:
        return chinese_help(self, ctx) if in_chinese() else super().get_help(ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_in_language(self.help))
        if ctx.parent is None:
            self._format_first_commands(ctx, formatter)

    def _format_first_commands(self, ctx: Any, formatter: Any) -> None:
        """What a newcomer has, and the command for it; on an old Python only what runs there."""
        here = {f"paceline {name}" for name in self.list_commands(ctx)}
        rows = [
            (commands, translated(situation) if in_chinese() else situation)
            for situation, commands in START.items()
            if all(" ".join(command.split()[:2]) in here for command in commands.split(", "))
        ]
        if rows:
            with formatter.section("Start here"):
                formatter.write_dl(rows)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for task, names in self._by_task(ctx).items():
            with formatter.section(task):
                formatter.write_dl([(name, _first_sentence(_in_language(self.commands[name].help))) for name in names])

    def _by_task(self, ctx: Any) -> dict[str, list[str]]:
        here = self.list_commands(ctx)
        tasks = {task: [name for name in names if name in here] for task, names in TASKS.items()}
        listed = {name for names in tasks.values() for name in names}
        others = [name for name in here if name not in listed]
        # Subcommands are not grouped.
        tasks["Other" if listed else "Commands"] = others
        return {task: names for task, names in tasks.items() if names}


def plain_help(text: str | None) -> str:
    """A command's help without its examples, as core/texts/help.json holds it."""
    return inspect.cleandoc((text or "").partition("Example:")[0]).strip()


def _in_language(text: str | None) -> str:
    plain = plain_help(text)
    return translated(plain) if in_chinese() else plain


def _first_sentence(text: str) -> str:
    sentence = " ".join(text.partition("\n\n")[0].split())
    return sentence.partition(";")[0].partition("；")[0].rstrip(".。")
