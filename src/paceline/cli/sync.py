"""`paceline sync`: make a place hold what another one holds."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.copy import From, Json, Patience, To, Workers
from paceline.cli.moving import progress_bar, tell


def sync(
    source: From,
    target: To,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Then remove from DST (never from this machine) what SRC no longer has."),
    ] = False,
    workers: Workers = 16,
    patience: Patience = 300.0,
    as_json: Json = False,
) -> None:
    """Bring DST up to date with SRC: checkpoints and profiles of a running job; commit markers go last.

    With --prune old objects go only after everything else is there and verified; never when anything failed.

    Example:  paceline sync output/checkpoint obs://bucket/job7/checkpoint --prune
    """
    from paceline.storage.engine import Speed
    from paceline.storage.retry import Backoff
    from paceline.storage.transfer import Options, Prune, transfer

    with progress_bar("syncing") as show:
        options = Options(
            prune=Prune.target if prune else Prune.nothing,
            speed=Speed(workers, Backoff(patience=patience)),
            progress=show,
        )
        report = transfer(source, target, options)
    tell(report, as_json=as_json)
