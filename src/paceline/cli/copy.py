"""`paceline copy`: files from any place to any place."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.moving import progress_bar, tell

From = Annotated[str, typer.Argument(metavar="SRC", help="Directory, file, s3://…, obs://… or ssh://user@host/path.")]
To = Annotated[str, typer.Argument(metavar="DST", help="Where it goes: any of the same.")]
Workers = Annotated[int, typer.Option("--workers", min=1, max=256, help="Files and parts at a time.")]
Patience = Annotated[float, typer.Option("--patience", min=0, help="Seconds to keep trying while nothing works.")]
Json = Annotated[bool, typer.Option("--json", help="Result as JSON.")]


def copy(
    source: From,
    target: To,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove each file from SRC after its copy was verified.")
    ] = False,
    workers: Workers = 16,
    patience: Patience = 300.0,
    as_json: Json = False,
) -> None:
    """Copy a directory's contents, or one file; run again after anything went wrong: only what is missing moves.

    Files appear whole or not at all, are verified by checksum, and never removed without --prune.

    Example:  paceline copy /cache/profiler obs://bucket/run1/0
    """
    from paceline.storage.engine import Speed
    from paceline.storage.retry import Backoff
    from paceline.storage.transfer import Options, Prune, transfer

    with progress_bar("copying") as show:
        options = Options(
            prune=Prune.source if prune else Prune.nothing,
            speed=Speed(workers, Backoff(patience=patience)),
            progress=show,
        )
        report = transfer(source, target, options)
    tell(report, as_json=as_json)
