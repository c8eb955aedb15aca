"""`paceline checkpoint resume-point`: the newest checkpoint that is complete and intact on every rank."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Optional

import typer
from typing_extensions import Annotated

if TYPE_CHECKING:
    from paceline.checkpoint.resume.resume_point import ResumePoint

_RANKS = 4
"""Files shown; --json lists all."""


def resume_point(
    location: Annotated[
        str, typer.Argument(metavar="DIR", help="Checkpoint or output directory, s3://, obs://, ssh://.")
    ],
    ranks: Annotated[
        Optional[int],
        typer.Option("--ranks", min=1, help="Ranks that must be complete.  [default: as the checkpoint says]"),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Read all data where a store has no checksums.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Print the checkpoint to resume from: the newest that is complete and intact on every rank; exit code 1 if none is.

    Example:  paceline checkpoint resume-point obs://bucket/gpt2/checkpoint
    """
    from paceline.checkpoint.resume.resume_point import find_resume_point

    point = find_resume_point(location, ranks=ranks, full=full)
    if as_json:
        print(json.dumps(asdict(point), indent=2, ensure_ascii=False))
    else:
        _print(point)


def _print(point: ResumePoint) -> None:
    for each in point.skipped:
        print(f"skipped: {each.name}: {each.reason}", file=sys.stderr)
    for note in point.notes:
        print(f"note:    {note}", file=sys.stderr)
    step = f", global step {point.global_step}" if point.global_step is not None else ""
    print(f"epoch {point.epoch}, step {point.step}{step}, {len(point.files)} rank{'s' if len(point.files) > 1 else ''}")
    keys = [key for files in point.files.values() for key in files]
    for key in keys[:_RANKS]:
        print(f"  {point.location}/{key}")
    if len(keys) > _RANKS:
        print(f"  … and {len(keys) - _RANKS} more (--json lists all)")
