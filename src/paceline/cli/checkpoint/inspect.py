"""`paceline checkpoint inspect`: what tensors a checkpoint holds, and how two checkpoints differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.checkpoint.options import JsonOption, SourceArgument, StepOption, StrategyOption
from paceline.output.console import Console

if TYPE_CHECKING:
    from paceline.checkpoint.checkpoint_content import Checkpoint
    from paceline.checkpoint.inspect import Difference, TensorRow
    from paceline.checkpoint.tensor_files import FileListing

LimitOption = Annotated[int, typer.Option("--limit", min=0, help="Rows to show; 0 for all.")]


def inspect(
    source: SourceArgument,
    other: Annotated[
        Optional[str], typer.Argument(metavar="[OTHER]", help="Another checkpoint, to compare with.")
    ] = None,
    strategy: StrategyOption = None,
    other_strategy: Annotated[Optional[str], typer.Option("--other-strategy", help="Strategy of OTHER.")] = None,
    step: StepOption = None,
    limit: LimitOption = 40,
    as_json: JsonOption = False,
) -> None:
    """List names, types, shapes, sizes and ranks of all tensors; with OTHER, list differences (exit code 1 if any).

    Example:  paceline checkpoint inspect output/checkpoint --strategy output/strategy
    Example:  paceline checkpoint inspect before after --other-strategy tp4.ckpt
    """
    from paceline.checkpoint.tensor_files import open_listing

    with open_listing(source) as place:
        checkpoint = _open(place, strategy, step)
        if other is None:
            _print_tensors(checkpoint, limit, as_json)
            return
        found = _differences(checkpoint, other, other_strategy)
    _print_differences(found, limit, as_json)
    if found:
        raise typer.Exit(1)


def _open(place: FileListing, strategy: str | None, step: str | None) -> Checkpoint:
    from paceline.checkpoint.rank_copies import different_values
    from paceline.checkpoint.select_step import parse_step
    from paceline.checkpoint.source_checkpoint import open_checkpoint
    from paceline.checkpoint.strategy.strategy import read_strategy

    checkpoint = open_checkpoint(place, read_strategy(strategy), step=parse_step(step) if step else None)
    if what := different_values(checkpoint):
        checkpoint.notes.append(f"{what}: these files cannot be joined")
    return checkpoint


def _differences(checkpoint: Checkpoint, other: str, other_strategy: str | None) -> list[Difference]:
    from paceline.checkpoint.inspect import differences
    from paceline.checkpoint.tensor_files import open_listing
    from paceline.checkpoint.transform import require_strategy

    with open_listing(other) as place:
        other_checkpoint = _open(place, other_strategy, None)
        require_strategy(checkpoint)
        require_strategy(other_checkpoint)
        return list(differences(checkpoint, other_checkpoint))


def _print_differences(found: list[Difference], limit: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"name": each.name, "difference": each.what} for each in found], ensure_ascii=False))
        return
    for each in found[: limit or None]:
        typer.echo(f"{each.name}: {each.what}")
    typer.echo(f"{len(found):,} tensors differ" if found else "no difference, bit for bit")


def _print_tensors(checkpoint: Checkpoint, limit: int, as_json: bool) -> None:
    from paceline.checkpoint.inspect import tensor_rows
    from paceline.cli.console.table_output import format_rows

    found = tensor_rows(checkpoint)
    if as_json:
        document = {"source": checkpoint.url, "format": checkpoint.format, "tensors": [_as_dict(row) for row in found]}
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    names = ("name", "type", "shape", "MB", "split", "ranks")
    grid = format_rows(names, [_cells(row) for row in found[: limit or None]], right=frozenset({3}))
    Console(highlight=False, soft_wrap=True).print(grid, markup=False)
    more = f" (shown: {limit}; --limit 0 for all)" if limit and len(found) > limit else ""
    size = f"{sum(row.bytes for row in found) / 1e6:,.1f} MB in total"
    typer.echo(f"{checkpoint.format} · {len(checkpoint.ranks):,} ranks · {len(found):,} tensors, {size}{more}")
    for note in checkpoint.notes:
        typer.echo(f"note: {note}", err=True)


def _as_dict(row: TensorRow) -> dict[str, object]:
    return {
        "name": row.name,
        "dtype": row.dtype,
        "shape": row.shape,
        "bytes": row.bytes,
        "cuts": row.cuts,
        "ranks": {rank: {"start": part.start, "shape": part.shape} for rank, part in row.ranks.items()},
    }


def _cells(row: TensorRow) -> tuple[str, ...]:
    cuts = "" if row.cuts is None else "×".join(map(str, row.cuts)) or "1"
    return row.name, row.dtype, str(list(row.shape)), f"{row.bytes / 1e6:,.3f}", cuts, _spans(row.ranks)


def _spans(ranks: Iterable[int]) -> str:
    """
    >>> _spans([0, 1, 2, 5])
    '0-2,5'
    """
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
