"""`paceline slim`: copy a profile without the files that no reader needs."""

from __future__ import annotations

import json
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.transfer_output import as_dict, print_report, progress_bar, summary
from paceline.cli.copy import From, Json, Patience, To, Workers
from paceline.collect.slimming import Keep
from paceline.core.str_enum import StrEnum


class Encoding(StrEnum):
    parquet = "parquet"


def slim(
    source: From,
    target: To,
    keep: Annotated[
        Keep, typer.Option("--keep", help="Files that readers open; steps and communication only; or every file.")
    ] = Keep.diagnosis,
    encode: Annotated[
        Optional[Encoding],
        typer.Option("--encode", help="Write tables instead of files; can be opened like any source."),
    ] = None,
    workers: Workers = 16,
    patience: Patience = 300.0,
    as_json: Json = False,
) -> None:
    """Copy a profile without raw device data: less than half the size, with the same diagnosis.

    Example:  paceline slim /cache/profiler obs://bucket/run1 --keep diagnosis --encode parquet
    """
    from paceline.collect.slimming import slim as make_slim
    from paceline.storage.transfer.retry import Backoff
    from paceline.storage.transfer.transfer import TransferOptions
    from paceline.storage.transfer.transfer_pool import TransferLimits

    with progress_bar("slimming") as show:
        options = TransferOptions(limits=TransferLimits(workers, Backoff(patience=patience)), progress=show)
        done = make_slim(source, target, keep, encode=encode is not None, options=options)
    if as_json:
        typer.echo(json.dumps({**as_dict(done.report), "before_bytes": done.before, "after_bytes": done.after}))
    else:
        typer.echo(f"{done.before / 1e6:,.1f} MB → {done.after / 1e6:,.1f} MB, {done.saved:.0%} saved", err=True)
        typer.echo(summary(done.report))
    print_report(done.report, quiet=True)
