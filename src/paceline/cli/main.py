"""The `paceline` command: loads the commands that are needed, and turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import typer
from typing_extensions import Annotated

from paceline.cli.address_space import check_address_space
from paceline.cli.console.help_format import WIDTH, Command, Commands
from paceline.cli.console.output_streams import guarded_streams
from paceline.cli.options.annotations import evaluate_annotations
from paceline.core.analysis import can_analyse, why_no_analysis
from paceline.core.errors import PacelineError, is_interrupt
from paceline.core.version import __version__
from paceline.core.waiting import show_waits

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
    "demo",
    "simulate",
    "copy",
    "sync",
    "ls",
    "slim",
    "collect",
    "cache",
    "kb",
    "schema",
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
    "hccl-parser",
)
"""Each is the function, or the Typer of subcommands, of this name in the module of the same name."""

IN_JOB = (
    "copy", "sync", "ls", "cache", "checkpoint", "launch", "rank-table", "train", "profile", "run-profiled", "hccl-parser",
)  # fmt: skip
"""Commands for the Python of a training job, without the analysis: from 3.8 on."""

_READ_ONLY = frozenset(
    {"diagnose", "breakdown", "what-if", "compare", "show", "sql", "export", "msadvisor", "kb", "schema"}
)
_ANALYSIS = _READ_ONLY | {"serve", "watch", "index", "simulate"}
PASS_ON = {
    "launch": {"ignore_unknown_options": True, "allow_interspersed_args": False},
    "run-profiled": {"ignore_unknown_options": True, "allow_interspersed_args": False},
    "train": {"ignore_unknown_options": True, "allow_extra_args": True},
}
"""Commands that pass unknown arguments on."""


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands; only their modules are imported, which halves the time of short commands."""
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
        if sys.version_info < (3, 10):
            evaluate_annotations(command)
        if isinstance(command, typer.Typer):
            for each in command.registered_commands:
                each.cls = Command
            app.add_typer(command, name=name, cls=Commands)
        else:
            app.command(name, cls=Command, context_settings=PASS_ON.get(name))(command)
    return app


def command_of(name: str) -> Any:
    plain = name.replace("-", "_")
    if not can_analyse() and name not in IN_JOB:
        raise PacelineError(f"paceline {name}: {why_no_analysis()}", hint=f"here: paceline {', '.join(IN_JOB)}")
    return getattr(import_module(f"paceline.cli.{plain}"), plain)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; stop at the first unreadable file.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if debug:
        os.environ["PACELINE_DEBUG"] = "1"


# Typer has its own copy of click since 0.20 and exports only the most specific exceptions: this is click's UsageError.
_WRONG_ARGUMENTS: Any = typer.BadParameter.__mro__[1]


def main() -> None:
    """Entry point: expected errors become one line on stderr and an exit code; unexpected ones keep their traceback."""
    named = [word for word in sys.argv[1:] if word in COMMANDS][:1]
    needed = () if sys.argv[1:] == ["--version"] else named or (COMMANDS if can_analyse() else IN_JOB)
    _tune_runtime(named)
    # Commands that pass arguments on run the user's own program in this process, or show its output as it is.
    with nullcontext() if PASS_ON.keys() & set(named) else guarded_streams():
        _run(needed)


def _run(needed: Sequence[str]) -> None:
    if "_PACELINE_COMPLETE" in os.environ:
        import_module("typer.completion").completion_init()  # adds the shells; the application then answers and exits
    show_waits(_print_note)
    try:
        if _ANALYSIS & set(needed) and len(needed) == 1:
            check_address_space()
        code = application(needed)(standalone_mode=False)
        if code:
            # Typer returns the code of an Exit, and 130 for Ctrl-C, instead of raising.
            raise KeyboardInterrupt if code == 130 else SystemExit(code)
        sys.stdout.flush()  # here, where a full disk or a closed pipe is still reported
    except PacelineError as error:
        if os.environ.get("PACELINE_DEBUG"):
            raise
        _print_error(f"paceline: {_with_file(error)}")
        if error.hint:
            _print_error(f"          {error.hint}")
        sys.exit(error.exit_code)
    except _WRONG_ARGUMENTS as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort, RuntimeError) as error:
        if not is_interrupt(error) and not isinstance(error, typer.Abort):
            raise
        _print_error("paceline: interrupted; data read so far is cached")
        sys.exit(130)
    except Exception as error:  # last resort: known errors become one line, the rest is raised again
        _report_unexpected(error)


def _report_unexpected(error: Exception) -> None:
    """OS errors, closed pipes and damaged stores that no package handled; everything else is a bug and is raised."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output (head, less) was closed, which is not an error.
        _redirect_stdout_to_devnull()
        return
    if os.environ.get("PACELINE_DEBUG"):
        raise error
    if isinstance(error, OSError):
        # The file and the reason are known; the traceback is for --debug.
        _redirect_stdout_to_devnull()
        _print_error(f"paceline: {error.filename or 'stdout'}: {error.strerror or error}")
    elif "duckdb" in type(error).__module__ and ".parquet" in str(error):
        _print_error(
            f"paceline: the store is damaged, or was rewritten by another process: {str(error).splitlines()[0]}"
        )
        _print_error(
            "          run the command again; if that fails too, remove the store's directory: it is rebuilt from the source"
        )
    else:
        raise error
    sys.exit(1)


def _redirect_stdout_to_devnull() -> None:
    """Python flushes stdout at exit; what could not be written must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tune_runtime(named: list[str]) -> None:
    """Importing and reading make a million long-lived objects: garbage collection among them costs a tenth of the time."""
    gc.set_threshold(100_000, 20, 20)
    if named and named[0] in _READ_ONLY:
        # Their matrices are tiny, and NumPy's idle threads spin. Commands that start a training are not in this list.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _with_file(error: PacelineError) -> str:
    """The message with the file an error is about, unless it names it already."""
    file, text = getattr(error, "file", None), str(error)
    return text if file is None or str(file) in text else f"{file}: {text}"


def _print_error(text: str) -> None:
    print(text, file=sys.stderr)


def _print_note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
