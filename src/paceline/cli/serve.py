"""`paceline serve`: the pages, for a browser."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import PacelineError, UsageError


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that holds the runs.")] = Path(),
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free one.")] = 8080,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Ask for a token on this machine's own address too.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name this server answers to; may be repeated.")
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option("--hardware", help="TOML with what differs from the usual speeds of links and cards.")
    ] = None,
) -> None:
    """Show all runs below a directory in the browser: diagnosis, charts, timelines, what-ifs, comparisons.

    Runs are found by content and only read. Listening on an address other machines reach needs a token: it is taken
    from PACELINE_TOKEN, or made up and printed once. With a hardware profile that names the cards' generation the pages
    know model FLOPs utilisation.

    Example:  paceline serve runs --port 8080
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory", hint="give the directory that holds the runs")
    try:
        import uvicorn
    except ImportError as error:
        raise PacelineError("the web server is not installed", hint="pip install 'paceline[web]'") from error
    from paceline.advice.hardware import load_hardware
    from paceline.web.listening import listen
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
        directory, rules, host=host, port=port, hardware=profile,
        announce=lambda address: _announce(directory, address, token),
    )  # fmt: skip


def _announce(directory: Path, address: str, token: str | None) -> None:
    given = token is not None and not os.environ.get("PACELINE_TOKEN")
    typer.echo(f"paceline: runs below {directory.resolve()}", err=True)
    typer.echo(f"          {address}/" + (f"?token={token}" if given else ""), err=True)
    if token is not None:
        told = (
            "the token in this address is printed once and opens everything served"
            if given
            else "token: PACELINE_TOKEN"
        )
        typer.echo(f"          {told}", err=True)
    typer.echo("          Ctrl-C stops it", err=True)
