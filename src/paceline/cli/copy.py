"""`paceline copy`: copy files between directories, buckets and hosts."""

from __future__ import annotations

import typer
from typing_extensions import Annotated

from paceline.cli.console.transfer_output import print_report, progress_bar

From = Annotated[str, typer.Argument(metavar="SRC", help="Directory, file, s3://…, obs://… or ssh://user@host/path.")]
To = Annotated[str, typer.Argument(metavar="DST", help="Target, of the same kinds.")]
Workers = Annotated[
    int, typer.Option("--workers", min=1, max=256, help="Files and parts transferred at the same time.")
]
Patience = Annotated[float, typer.Option("--patience", min=0, help="Give up after this many seconds without progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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
    """Copy a directory or a file; interrupted transfers resume: the same command again copies only what is missing.

    Files are written atomically and verified by checksum; nothing is removed from SRC without --prune.

    Example:  paceline copy /cache/profiler obs://bucket/run1/0
    """
    from paceline.storage.transfer.retry import Backoff
    from paceline.storage.transfer.transfer import Prune, TransferOptions, transfer
    from paceline.storage.transfer.transfer_pool import TransferLimits

    with progress_bar("copying", source, target) as show:
        options = TransferOptions(
            prune=Prune.source if prune else Prune.nothing,
            limits=TransferLimits(workers, Backoff(patience=patience)),
            progress=show,
        )
        report = transfer(source, target, options)
    print_report(report, as_json=as_json)
