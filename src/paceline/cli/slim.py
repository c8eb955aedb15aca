"""`paceline slim`: a smaller copy that gives the same diagnosis."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from paceline.cli.copy import From, Json, Patience, To, Workers
from paceline.cli.moving import as_dict, progress_bar, summary, tell
from paceline.collect.slimming import Keep


class Encoding(StrEnum):
    parquet = "parquet"


def slim(
    source: From,
    target: To,
    keep: Annotated[
        Keep, typer.Option("--keep", help="What readers open; steps and communication only; or every file.")
    ] = Keep.diagnosis,
    encode: Annotated[
        Encoding | None, typer.Option("--encode", help="Write the tables instead of the files; opens like any source.")
    ] = None,
    workers: Workers = 16,
    patience: Patience = 300.0,
    as_json: Json = False,
) -> None:
    """Copy a profile without raw device data: less than half the size, the same diagnosis.

    Example:  paceline slim /cache/profiler obs://bucket/run1 --keep diagnosis --encode parquet
    """
    from paceline.collect.slimming import slim as make_slim
    from paceline.storage.engine import Speed
    from paceline.storage.retry import Backoff
    from paceline.storage.transfer import Options

    with progress_bar("slimming") as show:
        options = Options(speed=Speed(workers, Backoff(patience=patience)), progress=show)
        done = make_slim(source, target, keep, encode=encode is not None, options=options)
    if as_json:
        typer.echo(json.dumps({**as_dict(done.report), "before_bytes": done.before, "after_bytes": done.after}))
    else:
        typer.echo(f"{done.before / 1e6:,.1f} MB → {done.after / 1e6:,.1f} MB, {done.saved:.0%} left behind", err=True)
        typer.echo(summary(done.report))
    tell(done.report, quiet=True)
