"""Format of --help: commands grouped by task with their first sentence, and examples that can be copied."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

TASKS = {
    "Find what is slow": ("diagnose", "breakdown", "what-if", "compare", "serve", "watch", "kb"),
    "Look at the data": ("show", "sql", "export", "index", "schema"),
    "Transfer data": ("ls", "copy", "sync", "slim", "collect"),
    "Record": ("profile", "run-profiled", "hccl-parser"),
    "Train and run jobs": ("train", "launch", "rank-table", "job", "doctor", "bench", "checkpoint"),
}
"""Commands that are in no group are listed under "Other"."""
WIDTH = 110


class Command(TyperCommand):
    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        text, _, examples = (self.help or "").partition("Example:")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(text).strip())
        # Not wrapped: a broken line cannot be copied.
        for line in filter(None, map(str.strip, f"Example:{examples}".splitlines() if examples else ())):
            lead = "" if line.startswith("Example:") else " " * len("Example:  ")
            formatter.write(f"{'' if lead else chr(10)}  {lead}{line}\n")


class Commands(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for task, names in self._by_task(ctx).items():
            with formatter.section(task):
                formatter.write_dl([(name, _first_sentence(self.commands[name].help or "")) for name in names])

    def _by_task(self, ctx: Any) -> dict[str, list[str]]:
        here = self.list_commands(ctx)
        tasks = {task: [name for name in names if name in here] for task, names in TASKS.items()}
        listed = {name for names in tasks.values() for name in names}
        others = [name for name in here if name not in listed]
        # Subcommands are not grouped.
        tasks["Other" if listed else "Commands"] = others
        return {task: names for task, names in tasks.items() if names}


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).partition(";")[0].rstrip(".")
