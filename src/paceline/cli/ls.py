"""`paceline ls`: list files of a directory, bucket or host."""

from __future__ import annotations

import json

import typer
from typing_extensions import Annotated

from paceline.cli.copy import Patience
from paceline.core.errors import UsageError
from paceline.core.waiting import waiting_for
from paceline.storage.store_errors import MissingError
from paceline.storage.stored_file import StoredFile


def ls(
    where: Annotated[str, typer.Argument(metavar="PLACE", help="Directory, s3://…, obs://… or ssh://user@host/path.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also files in subdirectories.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    patience: Patience = 30.0,
) -> None:
    """List files and sizes of a directory, bucket or host.

    Example:  paceline ls obs://bucket/profiler --recursive
    """
    from paceline.storage.reachability import require_reachable
    from paceline.storage.stores.open_store import open_item, open_store
    from paceline.storage.transfer.retry import Backoff, retry_call

    def look() -> list[StoredFile]:
        store = open_store(where)
        missing: MissingError | None = None
        try:
            found = list(store.list_files(recursive=recursive))
        except MissingError as error:
            # There is no such directory, but there may be a file of this name.
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

    require_reachable(where)
    with waiting_for(f"the listing of {where}"):
        items = retry_call(Backoff(patience=patience), look)
    if not items:
        raise UsageError(
            f"{where}: no such file, object or prefix", hint="check the name; buckets and paths are case-sensitive"
        )
    for item in items:
        _print(item.key, item.size, as_json)
    files = [item for item in items if not item.key.endswith("/")]
    typer.echo(f"{len(files):,} files, {sum(item.size for item in files) / 1e6:,.1f} MB", err=True)


def _print(key: str, size: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"key": key, "size": size}, ensure_ascii=False))
    else:
        typer.echo(f"{'' if key.endswith('/') else f'{size:,}':>18}  {key}")
