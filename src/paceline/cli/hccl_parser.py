"""`paceline hccl-parser`: raise the limit of 500 communication operators in CANN's hccl_parser wheel."""

from __future__ import annotations

from pathlib import Path

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.collect.hccl_parser_wheel import pre_start_lines, raise_limit
from paceline.core.errors import UsageError
from paceline.core.i18n import text

hccl_parser = typer.Typer(
    help="Raise the limit of CANN's hccl_parser, which stops after 500 communication operators per card.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@hccl_parser.command("raise-limit")
def raise_limit_command(
    wheel: Annotated[Path, typer.Argument(help="hccl_parser-0.1-py3-none-any.whl, from tools/ of the CANN package.")],
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=10**9, help="Most operators to read per card.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Directory for the wheel and ma-pre-start.sh: your code directory.")
    ] = Path("raised-limit"),
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the text.")] = LanguageOption.auto,
) -> None:
    """Write the wheel with a higher limit, and the two lines of ma-pre-start.sh that install it on ModelArts.

    Example:  paceline hccl-parser raise-limit hccl_parser-0.1-py3-none-any.whl -n 20000 -o my-code
    """
    language = resolve_language(lang)
    target = out / wheel.name
    if target.exists() and target.samefile(wheel):
        raise UsageError(f"{wheel}: would be overwritten", hint="name another directory with -o")
    done = raise_limit(wheel, limit, target)
    script = out / "ma-pre-start.sh"
    _add_lines(script, pre_start_lines(wheel.name))
    values = {"wheel": target, "module": done.module, "old": done.old, "new": done.new, "script": script}
    typer.echo(text("cli.hccl_parser.raised", language, **values))
    typer.echo(text("cli.hccl_parser.script", language, **values))
    if done.new <= done.old:
        typer.echo(text("cli.hccl_parser.lower", language, **values), err=True)


def _add_lines(script: Path, lines: tuple[str, ...]) -> None:
    """At the end of the script; lines that it holds already are not added again."""
    before = script.read_text("utf-8") if script.exists() else "#!/bin/bash\n"
    missing = [line for line in lines if line not in before.splitlines()]
    ended = before if before.endswith("\n") else before + "\n"
    script.write_text(ended + "".join(f"{line}\n" for line in missing), "utf-8")
