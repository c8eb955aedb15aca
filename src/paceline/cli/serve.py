"""`paceline serve`: the web pages of all runs below a directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import PacelineError, UsageError


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that holds the runs.")] = Path(),
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free one.")] = 8080,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Ask for a token on the loopback address too.")
    ] = False,
    allow_host: Annotated[
        Optional[List[str]], typer.Option(help="Another host name that requests may use; may be repeated.")
    ] = None,
    hardware: Annotated[
        Optional[Path],
        typer.Option("--hardware", help="TOML with speeds of links and cards that differ from the defaults."),
    ] = None,
) -> None:
    """Show all runs below a directory in the browser: diagnosis, charts, timelines, what-ifs, comparisons.

    Runs are found by content and only read. Listening on an address that other machines can reach needs a token: it is read
    from PACELINE_TOKEN, or generated and printed once. With a hardware profile that names the cards' generation the pages
    show model FLOPs utilisation.

    Example:  paceline serve runs --port 8080
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: directory not found", hint="give the directory that holds the runs")
    try:
        import uvicorn
    except ImportError as error:
        raise PacelineError("the web server is not installed", hint="pip install 'paceline[web]'") from error
    from paceline.diagnosis.hardware import load_hardware
    from paceline.web.listen import listen
    from paceline.web.security import is_loopback, rules_for

    token = None
    if require_token or not is_loopback(host):
        token = os.environ.get("PACELINE_TOKEN") or secrets.token_urlsafe(32)
        if len(token) < 16:
            raise UsageError("PACELINE_TOKEN is too short", hint="use at least 16 characters, or leave it unset")
    rules = rules_for(host, token=token, names=tuple(allow_host or ()))
    del uvicorn
    profile = load_hardware(hardware) if hardware else None
    listen(
        directory,
        rules,
        host=host,
        port=port,
        hardware=profile,
        announce=lambda address: _announce(directory, address, token),
    )


def _announce(directory: Path, address: str, token: str | None) -> None:
    given = token is not None and not os.environ.get("PACELINE_TOKEN")
    typer.echo(f"paceline: runs below {directory.resolve()}", err=True)
    typer.echo(f"          {address}/" + (f"?token={token}" if given else ""), err=True)
    if token is not None:
        note = (
            "the token in this address is printed once and gives access to everything served"
            if given
            else "token: PACELINE_TOKEN"
        )
        typer.echo(f"          {note}", err=True)
    typer.echo("          stop it with Ctrl-C", err=True)
