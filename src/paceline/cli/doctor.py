"""`paceline doctor`: what would go wrong with a job, before it is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.job import Place
from paceline.cli.language import Language, is_chinese

_MARKS = {"good": "✓", "warning": "!", "bad": "✗"}


def doctor(
    description: Annotated[Path | None, typer.Argument(metavar="[JOB.YAML]", help="The job to check for.")] = None,
    backend: Annotated[Place | None, typer.Option("--backend", help="Instead of the description's.")] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of what is said.")] = Language.auto,
    as_json: Annotated[bool, typer.Option("--json", help="All checks as JSON.")] = False,
) -> None:
    """Check description, keys, names, endpoints, buckets, clock, disk and versions, and say what to change.

    Buckets the job writes to are tried with a small object that is removed again. The exit code is 1 when anything
    would stop the job.

    Example:  paceline doctor job.yaml
    """
    import msgspec

    from paceline.jobs.doctor import Verdict, examine

    chinese, checks = is_chinese(lang), []
    for check in examine(description, backend.value if backend else None):
        checks.append(check)
        if as_json:
            continue
        typer.echo(f"{_MARKS[check.verdict.value]} {_indented(check.found.said(chinese))}")
        if check.advice:
            typer.echo(f"  → {_indented(check.advice.said(chinese), 4)}")
    failed = sum(check.verdict is Verdict.bad for check in checks)
    if as_json:
        rows = [{**msgspec.to_builtins(check), "found": check.found._asdict(),
                 "advice": check.advice._asdict() if check.advice else None} for check in checks]  # fmt: skip
        typer.echo(json.dumps({"schema": "paceline.doctor/1", "ok": not failed, "checks": rows}, ensure_ascii=False))
    elif failed:
        typer.echo(f"{failed} 项需要修改" if chinese else f"{failed} to change before the job can run", err=True)
    raise typer.Exit(1 if failed else 0)


def _indented(text: str, depth: int = 2) -> str:
    return text.replace("\n", "\n" + " " * depth)
