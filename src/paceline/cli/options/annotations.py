"""Options of commands on Python 3.8 and 3.9, where Typer does not evaluate annotations that are text.

Without this, help texts, short options and repeated options of every command would be lost there.
"""

from __future__ import annotations

from typing import Any, Iterator

import typer
from typing_extensions import get_type_hints


def evaluate_annotations(command: Any) -> None:
    """Of a function, or of all commands of a Typer."""
    for function in _functions(command):
        function.__annotations__ = get_type_hints(function, include_extras=True)


def _functions(command: Any) -> Iterator[Any]:
    if not isinstance(command, typer.Typer):
        yield command
        return
    for each in command.registered_commands:
        yield each.callback
    if command.registered_callback is not None:
        yield command.registered_callback.callback
    for group in command.registered_groups:
        yield from _functions(group.typer_instance)
