"""`paceline ls`: what lies where."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from paceline.cli.copy import Patience
from paceline.errors import UsageError
from paceline.storage.store import Item, MissingError


def ls(
    where: Annotated[str, typer.Argument(metavar="PLACE", help="Directory, s3://…, obs://… or ssh://user@host/path.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, not just one level.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    patience: Patience = 30.0,
) -> None:
    """List files and sizes of any place.

    Example:  paceline ls obs://bucket/profiler --recursive
    """
    from paceline.storage.opening import open_item, open_store
    from paceline.storage.retry import Backoff, patiently

    def look() -> list[Item]:
        store = open_store(where)
        missing: MissingError | None = None
        try:
            found = list(store.items(shallow=not recursive))
        except MissingError as error:
            # A host has no such directory, but may have a file of that name.
            found, missing = [], error
        finally:
            store.close()
        single = None if found else open_item(where)
        if single:
            single[0].close()
            return [single[1]]
        if missing:
            raise missing
        return found

    items = patiently(Backoff(patience=patience), look)
    if not items:
        raise UsageError(f"{where}: nothing there", hint="check the name; buckets and paths are case-sensitive")
    for item in items:
        _print(item.key, item.size, as_json)
    files = [item for item in items if not item.key.endswith("/")]
    typer.echo(f"{len(files):,} files, {sum(item.size for item in files) / 1e6:,.1f} MB", err=True)


def _print(key: str, size: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"key": key, "size": size}, ensure_ascii=False))
    else:
        typer.echo(f"{'' if key.endswith('/') else f'{size:,}':>18}  {key}")
