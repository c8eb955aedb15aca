"""The `paceline` command: parses, calls and prints; decides nothing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from paceline.cli.helping import WIDTH, Command, Commands
from paceline.errors import PacelineError, is_interrupt
from paceline.version import __version__

COMMANDS = (
    "diagnose",
    "breakdown",
    "what-if",
    "compare",
    "serve",
    "watch",
    "show",
    "sql",
    "export",
    "index",
    "simulate",
    "copy",
    "sync",
    "ls",
    "slim",
    "collect",
    "kb",
    "msadvisor",
    "checkpoint",
    "bench",
    "job",
    "doctor",
    "launch",
    "rank-table",
    "train",
    "profile",
    "run-profiled",
)
"""Each is the function, or the Typer of subcommands, of that name in the module of that name."""

_READ_ONLY = frozenset({"diagnose", "breakdown", "what-if", "compare", "show", "sql", "export", "msadvisor", "kb"})
PASS_ON = {
    "launch": {"ignore_unknown_options": True, "allow_interspersed_args": False},
    "run-profiled": {"ignore_unknown_options": True, "allow_interspersed_args": False},
    "train": {"ignore_unknown_options": True, "allow_extra_args": True},
}
"""Commands that hand on what is not theirs."""


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands; only their modules are imported, which is half of a short command's time."""
    app = typer.Typer(
        name="paceline",
        help="Finds what slows a training cluster, proves it, and says what fixing it would gain.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        cls=Commands,
        context_settings={"max_content_width": WIDTH},
    )
    app.callback()(_options)
    for name in commands:
        command = command_of(name)
        if isinstance(command, typer.Typer):
            for each in command.registered_commands:
                each.cls = Command
            app.add_typer(command, name=name, cls=Commands)
        else:
            app.command(name, cls=Command, context_settings=PASS_ON.get(name))(command)
    return app


def command_of(name: str) -> Any:
    plain = name.replace("-", "_")
    return getattr(import_module(f"paceline.cli.{plain}"), plain)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; stop at the first unreadable file.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    if debug:
        os.environ["PACELINE_DEBUG"] = "1"


# Typer carries its own copy of click since 0.20 and names only the leaves of its exceptions: this is their UsageError.
_WRONG_ARGUMENTS: Any = typer.BadParameter.__mro__[1]


def main() -> None:
    """Entry point: one sentence on stderr for what a person can act on, exit codes that mean something."""
    named = [word for word in sys.argv[1:] if word in COMMANDS][:1]
    _travel_light(named)
    try:
        code = application(named or COMMANDS)(standalone_mode=False)
        if code:
            # Typer returns the code of an Exit, and 130 for Ctrl-C, instead of raising.
            raise KeyboardInterrupt if code == 130 else SystemExit(code)
        sys.stdout.flush()  # here, where somebody hears that the disk is full or the reader has gone
    except PacelineError as error:
        if os.environ.get("PACELINE_DEBUG"):
            raise
        _say(f"paceline: {_with_place(error)}")
        if error.hint:
            _say(f"          {error.hint}")
        sys.exit(error.exit_code)
    except _WRONG_ARGUMENTS as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort, RuntimeError) as error:
        if not is_interrupt(error) and not isinstance(error, typer.Abort):
            raise
        _say("paceline: stopped; what was read is kept")
        sys.exit(130)
    except Exception as error:  # the last door: some can still be said in a sentence, the rest is raised again
        _say_other(error)


def _say_other(error: Exception) -> None:
    """What no room made a sentence of, but a person can act on all the same; everything else is a fault of ours."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output (head, less) went away: nothing is wrong, and nothing more can be said.
        _let_stdout_go()
        return
    if os.environ.get("PACELINE_DEBUG"):
        raise error
    if isinstance(error, OSError):
        # Whatever place was meant: it has a name and a reason, and the traceback is for --debug.
        _let_stdout_go()
        _say(f"paceline: {error.filename or 'stdout'}: {error.strerror or error}")
    elif "duckdb" in type(error).__module__ and ".parquet" in str(error):
        _say(f"paceline: the store is damaged, or was written anew meanwhile: {str(error).splitlines()[0]}")
        _say("          start again; if that does not help, remove the store's directory: the source is read anew")
    else:
        raise error
    sys.exit(1)


def _let_stdout_go() -> None:
    """What could not be written is not tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _travel_light(named: list[str]) -> None:
    """Importing and reading make a million objects that live until the end: looking for garbage among them costs a tenth."""
    gc.set_threshold(100_000, 20, 20)
    if named and named[0] in _READ_ONLY:
        # Their matrices are tiny, and NumPy's idle threads spin. Nobody's training inherits this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _with_place(error: PacelineError) -> str:
    """Readers say what is wrong with a file; here nobody else says which."""
    file, text = getattr(error, "file", None), str(error)
    return text if file is None or str(file) in text else f"{file}: {text}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
