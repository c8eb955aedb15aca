"""`paceline doctor`: check everything a job needs before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.backend_option import BackendOption
from paceline.core.i18n import text

_MARKS = {"good": "✓", "warning": "!", "bad": "✗"}


def doctor(
    description: Annotated[Optional[Path], typer.Argument(metavar="[JOB.YAML]", help="The job to check for.")] = None,
    backend: BackendOption = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the output.")] = LanguageOption.auto,
    as_json: Annotated[bool, typer.Option("--json", help="All checks as JSON.")] = False,
) -> None:
    """Check what a job needs before it starts: description, credentials, hosts, buckets, clock, disk, versions.

    Buckets the job writes to are tried with a small object that is removed again. The exit code is 1 when a check fails
    that would stop the job.

    Example:  paceline doctor job.yaml
    """
    import msgspec

    from paceline.jobs.doctor import CheckVerdict, DoctorReport, run_checks

    language, checks = resolve_language(lang), []
    for check in run_checks(description, backend):
        checks.append(check)
        if as_json:
            continue
        typer.echo(f"{_MARKS[check.verdict.value]} {_indented(check.found[language])}")
        if check.advice:
            typer.echo(f"  → {_indented(check.advice[language], 4)}")
    failed = sum(check.verdict is CheckVerdict.bad for check in checks)
    if as_json:
        typer.echo(msgspec.json.encode(DoctorReport(not failed, tuple(checks))).decode())
    elif failed:
        typer.echo(text("doctor.failed", language, n=failed), err=True)
    raise typer.Exit(1 if failed else 0)


def _indented(lines: str, depth: int = 2) -> str:
    return lines.replace("\n", "\n" + " " * depth)
