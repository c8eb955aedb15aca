"""`paceline job flavors`, `engines` and `pools`: what a ModelArts offers, to choose from in job.yaml."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import msgspec
import typer
from typing_extensions import Annotated

if TYPE_CHECKING:
    from paceline.jobs.modelarts.client import TrainingJobClient

Described = Annotated[
    Optional[Path],
    typer.Argument(metavar="[JOB.YAML]", help="Says which ModelArts.  [default: the environment or the access file]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the list as JSON.")]


def flavors(description: Described = None, as_json: Json = False) -> None:
    """List the machine types of ModelArts with their cards: values of flavor:.

    Example:  paceline job flavors job.yaml
    """
    offered = _client(description).flavors()
    rows = [(each.id, str(each.cards or ""), each.product or each.name) for each in offered]
    _print(offered, ("FLAVOR", "CARDS", "KIND"), rows, as_json)


def engines(description: Described = None, as_json: Json = False) -> None:
    """List the framework images of ModelArts: values of engine:.

    Example:  paceline job engines job.yaml
    """
    offered = _client(description).engines()
    _print(offered, ("ENGINE", "VERSION"), [(each.name, each.version) for each in offered], as_json)


def pools(description: Described = None, as_json: Json = False) -> None:
    """List the dedicated pools of this project: values of pool_id:.

    Example:  paceline job pools job.yaml
    """
    offered = _client(description).pools()
    _print(offered, ("POOL", "NAME", "PHASE"), [(each.id, each.name, each.phase) for each in offered], as_json)


def _client(description: Path | None) -> TrainingJobClient:
    from paceline.jobs import load_job
    from paceline.jobs.description import ModelArtsSettings
    from paceline.jobs.modelarts.client import TrainingJobClient

    return TrainingJobClient(load_job(description).modelarts if description else ModelArtsSettings())


def _print(offered: Sequence[object], head: Sequence[str], rows: Sequence[Sequence[str]], as_json: bool) -> None:
    from paceline.cli.console.job_output import aligned

    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(offered), ensure_ascii=False))
    elif rows:
        typer.echo(aligned([tuple(head), *(tuple(row) for row in rows)]))
    else:
        typer.echo("none: this account may not list them, or there are none", err=True)
