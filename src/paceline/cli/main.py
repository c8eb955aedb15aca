"""The `paceline` command: parses, calls and prints; decides nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from paceline import __version__
from paceline.cli.checkpoint import app as checkpoint
from paceline.cli.collect import collect
from paceline.cli.compare import compare
from paceline.cli.copy import copy
from paceline.cli.diagnose import diagnose
from paceline.cli.export import export
from paceline.cli.kb import kb
from paceline.cli.ls import ls
from paceline.cli.msadvisor import msadvisor
from paceline.cli.serve import serve
from paceline.cli.show import show
from paceline.cli.simulate import simulate
from paceline.cli.slim import slim
from paceline.cli.sql import sql
from paceline.cli.sync import sync
from paceline.cli.what_if import what_if
from paceline.errors import PacelineError

app = typer.Typer(
    name="paceline",
    help="Finds what slows a training cluster, proves it, and says what fixing it would gain.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

COMMANDS: tuple[Callable[..., Any], ...] = (
    diagnose,
    what_if,
    compare,
    serve,
    show,
    sql,
    export,
    simulate,
    copy,
    sync,
    ls,
    slim,
    collect,
    kb,
    msadvisor,
)
for command in COMMANDS:
    app.command(command.__name__.replace("_", "-"))(command)
app.add_typer(checkpoint, name="checkpoint")


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; stop at the first unreadable file.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if debug:
        os.environ["PACELINE_DEBUG"] = "1"
    if version:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


# Typer carries its own copy of click since 0.20 and names only the leaves of its exceptions: this is their UsageError.
_WRONG_ARGUMENTS: Any = typer.BadParameter.__mro__[1]


def main() -> None:
    """Entry point: one sentence on stderr for what a person can act on, exit codes that mean something."""
    try:
        code = app(standalone_mode=False)
        if code:
            # Typer returns the code of an Exit, and 130 for Ctrl-C, instead of raising.
            raise KeyboardInterrupt if code == 130 else SystemExit(code)
    except PacelineError as error:
        if os.environ.get("PACELINE_DEBUG"):
            raise
        _say(f"paceline: {error}")
        if error.hint:
            _say(f"          {error.hint}")
        sys.exit(error.exit_code)
    except _WRONG_ARGUMENTS as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _say("paceline: stopped; what was read is kept")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (head, less) went away: nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
