"""`paceline sync`: update a directory or bucket from another one."""

from __future__ import annotations

import typer
from typing_extensions import Annotated

from paceline.cli.console.transfer_output import print_report, progress_bar
from paceline.cli.copy import From, Json, Patience, To, Workers


def sync(
    source: From,
    target: To,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="At the end, remove from DST (never from this machine) what SRC no longer has."),
    ] = False,
    workers: Workers = 16,
    patience: Patience = 300.0,
    as_json: Json = False,
) -> None:
    """Update DST from SRC, e.g. checkpoints and profiles of a running job; commit markers are written last.

    With --prune, old objects are removed after everything else was transferred and verified; never after a failure.

    Example:  paceline sync output/checkpoint obs://bucket/job7/checkpoint --prune
    """
    from paceline.storage.transfer.retry import Backoff
    from paceline.storage.transfer.transfer import Prune, TransferOptions, transfer
    from paceline.storage.transfer.transfer_pool import TransferLimits

    with progress_bar("syncing", source, target) as show:
        options = TransferOptions(
            prune=Prune.target if prune else Prune.nothing,
            limits=TransferLimits(workers, Backoff(patience=patience)),
            progress=show,
        )
        report = transfer(source, target, options)
    print_report(report, as_json=as_json)
