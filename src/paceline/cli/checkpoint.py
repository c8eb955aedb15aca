"""`paceline checkpoint`: weights on disk, cut anew, converted, merged, looked at and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from paceline.cli.moving import progress_bar
from paceline.cli.resume_point import resume_point
from paceline.errors import PacelineError, UsageError
from paceline.storage.report import OnProgress
from paceline.whole import whole_file

if TYPE_CHECKING:
    from paceline.checkpoint.files import Place
    from paceline.checkpoint.reshard import Options, Outcome
    from paceline.checkpoint.source import Checkpoint

checkpoint = typer.Typer(
    help="Reshard, convert, merge, inspect and verify checkpoints, without MindSpore.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
checkpoint.command("resume-point")(resume_point)


class Format(StrEnum):
    ckpt = "ckpt"
    safetensors = "safetensors"
    mindformers = "mindformers"


_STRATEGY = "Strategy file, or a directory of them to merge; none: full weights."
From = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="rank_* directories, a directory, a file, s3:// or obs://.")
]
To = Annotated[str, typer.Argument(metavar="TARGET", help="Directory, s3:// or obs://.")]
Strategy = Annotated[str | None, typer.Option("--strategy", help=_STRATEGY)]
Step = Annotated[str | None, typer.Option("--step", help="EPOCH_STEP of file names.  [default: the newest complete]")]
Memory = Annotated[str, typer.Option("--memory", help="Memory to stay within.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=64, help="Threads.  [default: cores, at most 4]")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there with another content.")]
Once = Annotated[
    bool, typer.Option("--remove_redundancy", help="Of equal parts only one was saved (safetensors say so themselves).")
]
As = Annotated[Format | None, typer.Option("--format", help="[default: the source's]")]
Json = Annotated[bool, typer.Option("--json", help="Result as JSON.")]


@checkpoint.command()
def transform(
    src_ckpt_dir: Annotated[
        str, typer.Option("--src_ckpt_dir", "--src-ckpt-dir", help="Checkpoint: rank_* directories, …")
    ],
    dst_ckpt_dir: Annotated[str, typer.Option("--dst_ckpt_dir", "--dst-ckpt-dir", help="Where the new one goes.")],
    src_ckpt_strategy: Annotated[
        str | None, typer.Option("--src_ckpt_strategy", "--src-ckpt-strategy", help=_STRATEGY)
    ] = None,
    dst_ckpt_strategy: Annotated[
        str | None, typer.Option("--dst_ckpt_strategy", "--dst-ckpt-strategy", help=_STRATEGY)
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Files become rank_N/{prefix}N.ckpt.")] = "checkpoint_",
    rank: Annotated[
        list[int] | None, typer.Option("--rank", min=0, help="Only this rank of the target; again for more.")
    ] = None,
    format: As = None,
    step: Step = None,
    shard_size: Annotated[
        str | None, typer.Option("--shard-size", help="Full safetensors in files of this size, with an index (3G).")
    ] = None,
    crc: Annotated[bool, typer.Option("--crc", help="End .ckpt files with a checksum.")] = False,
    once: Once = False,
    memory: Memory = "1G",
    workers: Workers = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Cut a checkpoint anew for another parallel layout: in constant memory, resumable, each file whole or not at all.

    Example:  paceline checkpoint transform --src_ckpt_strategy strategy/ --dst_ckpt_strategy tp4.ckpt \\
              --src_ckpt_dir output/checkpoint --dst_ckpt_dir output/tp4
    """
    from paceline.checkpoint.transform import Request
    from paceline.checkpoint.transform import transform as run

    with progress_bar("writing") as show:
        request = Request(
            src_ckpt_dir, dst_ckpt_dir, src_ckpt_strategy, dst_ckpt_strategy, step, once, format.value if format else None,
            prefix, crc, size(shard_size) if shard_size else 0, _options(memory, workers, overwrite, show),
        )  # fmt: skip
        outcome = run(request, rank or None)
    _tell(outcome, as_json)


@checkpoint.command("merge-strategy")
def merge_strategy(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Strategy files of all ranks or stages.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="[default: DIR/merged_ckpt_strategy.ckpt]")
    ] = None,
) -> None:
    """Merge the strategy files of all pipeline stages into one; a name that ends with .json makes it JSON.

    Example:  paceline checkpoint merge-strategy output/strategy -o strategy.ckpt
    """
    from paceline.checkpoint.strategy import MERGED_NAME, read_strategy_directory, write_strategy

    merged = read_strategy_directory(directory)
    target = output or Path(directory) / MERGED_NAME
    _write(target, write_strategy(merged, merged=True, as_json=target.suffix == ".json"))
    typer.echo(f"{target}: {len(merged.names):,} parameters, {len(merged.stages)} stages of {merged.devices} devices")


@checkpoint.command()
def strategy(
    description: Annotated[
        str, typer.Argument(metavar="DESCRIPTION", help="Devices, outermost first: dp=2,tp=2,pp=2,opt")
    ],
    checkpoint: Annotated[str, typer.Option("--like", help="Checkpoint that has the parameters' names and shapes.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Strategy file to write (.ckpt or .json).")],
    rule: Annotated[list[str] | None, typer.Option("--rule", help='"PATTERN: AXES [@STAGES]"; again for more.')] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="File with a rule a line.")] = None,
    step: Step = None,
) -> None:
    """Write a strategy from a plain description, for runs whose strategy nobody saved.

    A rule says for each axis of a parameter which device axis cuts it ("-" for none, "dp+tp" for both); the first
    that fits counts, parameters without one are whole on every rank. "opt" shards optimizer states over replicas.

    Example:  paceline checkpoint strategy dp=2,tp=2 --like output/checkpoint -o strategy.ckpt \\
              --rule "*.wq.weight: tp,-" --rule "*.wo.weight: -,tp"
    """
    from paceline.checkpoint.choice import parse_step
    from paceline.checkpoint.describe import describe, parse_description, parse_rule
    from paceline.checkpoint.files import opened
    from paceline.checkpoint.source import open_checkpoint
    from paceline.checkpoint.strategy import write_strategy

    lines = [*(rule or []), *(_lines(rules) if rules else [])]
    with opened(checkpoint) as place:
        made = describe(
            parse_description(description),
            [parse_rule(line) for line in lines],
            open_checkpoint(place, step=parse_step(step) if step else None),
        )
    _write(output, write_strategy(made, merged=len(made.stages) > 1, as_json=output.suffix == ".json"))
    cut = sum(max(layout.cuts, default=1) > 1 for stage in made.stages for layout in stage.values())
    typer.echo(f"{output}: {len(made.names):,} parameters ({cut:,} cut), {len(made.stages)} × {made.devices} ranks")


@checkpoint.command("merge-lora")
def merge_lora(
    source: From,
    target: To,
    scaling: Annotated[float, typer.Option("--lora_scaling", "--scaling", help="lora_alpha / lora_rank.")] = 1.0,
    strategy: Strategy = None,
    format: As = None,
    step: Step = None,
    once: Once = False,
    memory: Memory = "1G",
    workers: Workers = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Add LoRA weights to the weights they belong to (W + scaling · B · A), as full weights: merged_lora.ckpt.

    Example:  paceline checkpoint merge-lora output/checkpoint merged --strategy strategy/ --scaling 2
    """
    from paceline.checkpoint.transform import Request
    from paceline.checkpoint.transform import merge_lora as run

    with progress_bar("merging") as show:
        options = _options(memory, workers, overwrite, show)
        outcome = run(
            Request(
                source, target, strategy, step=step, once=once, format=format.value if format else None, options=options
            ),
            scaling,
        )
    _tell(outcome, as_json)


@checkpoint.command()
def convert(
    source: From,
    target: To,
    format: Annotated[Format, typer.Option("--format", help="What to write.")],
    step: Step = None,
    shard_size: Annotated[
        str | None, typer.Option("--shard-size", help="Full safetensors in files of this size, with an index (3G).")
    ] = None,
    crc: Annotated[bool, typer.Option("--crc", help="End .ckpt files with a checksum.")] = False,
    memory: Memory = "1G",
    workers: Workers = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the same tensors in another format, file by file; reads .ckpt, safetensors, checkpoint 2.0 and torch's .pt.

    Example:  paceline checkpoint convert output/checkpoint output/safetensors --format safetensors
    """
    from paceline.checkpoint.transform import Request
    from paceline.checkpoint.transform import convert as run

    with progress_bar("converting") as show:
        request = Request(
            source, target, step=step, format=format.value, crc=crc, shard_bytes=size(shard_size) if shard_size else 0,
            options=_options(memory, workers, overwrite, show),
        )  # fmt: skip
        outcome = run(request)
    _tell(outcome, as_json)


@checkpoint.command()
def inspect(
    source: From,
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="Another checkpoint, to compare with.")] = None,
    strategy: Strategy = None,
    other_strategy: Annotated[str | None, typer.Option("--other-strategy", help="OTHER's.")] = None,
    step: Step = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows to show; 0 for all.")] = 40,
    as_json: Json = False,
) -> None:
    """Names, types, shapes and sizes, and which rank holds what; with OTHER, what differs (exit code 1 if anything does).

    Example:  paceline checkpoint inspect output/checkpoint --strategy output/strategy
    Example:  paceline checkpoint inspect before after --other-strategy tp4.ckpt
    """
    from paceline.checkpoint.files import opened

    with opened(source) as place:
        ours = _open(place, strategy, step)
        if other is None:
            _show(ours, limit, as_json)
            return
        from paceline.checkpoint.inspect import differences
        from paceline.checkpoint.transform import need_strategy

        with opened(other) as other_place:
            theirs = _open(other_place, other_strategy, None)
            need_strategy(ours)
            need_strategy(theirs)
            found = list(differences(ours, theirs))
    if as_json:
        typer.echo(json.dumps([{"name": each.name, "difference": each.what} for each in found], ensure_ascii=False))
    else:
        for each in found[: limit or None]:
            typer.echo(f"{each.name}: {each.what}")
        typer.echo(f"{len(found):,} tensors differ" if found else "no difference, bit for bit")
    if found:
        raise typer.Exit(1)


@checkpoint.command()
def verify(
    source: From, strategy: Strategy = None, step: Step = None, once: Once = False, as_json: Json = False
) -> None:
    """Check structure and checksums of every file, that no part is missing, and that replicas are equal.

    Example:  paceline checkpoint verify output/checkpoint --strategy output/strategy
    """
    from paceline.checkpoint.choice import parse_step
    from paceline.checkpoint.files import opened
    from paceline.checkpoint.strategy import read_strategy
    from paceline.checkpoint.verify import verify as check

    with opened(source) as place:
        verdict = check(place, read_strategy(strategy), step=parse_step(step) if step else None, once=once)
    if as_json:
        typer.echo(json.dumps(asdict(verdict), ensure_ascii=False))
    else:
        typer.echo(
            f"{verdict.files:,} files, {verdict.tensors:,} tensors, {verdict.bytes / 1e6:,.1f} MB;"
            f" {verdict.checksums:,} checksums and {verdict.replicas:,} replicas compared"
        )
    for note in verdict.notes:
        typer.echo(f"note:    {note}", err=True)
    for problem in verdict.problems:
        typer.echo(f"problem: {problem}", err=True)
    if verdict.problems:
        raise PacelineError(f"{source}: {len(verdict.problems):,} problems")


def size(text: str) -> int:
    """Bytes of 512M, 1G, 3GiB.

    >>> size("512M") == 512 << 20, size("1.5GiB") == 3 << 29
    (True, True)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"{text}: is no size", hint="examples: 512M, 1G")
    bytes_ = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))
    if not bytes_:
        raise UsageError(f"{text}: is nothing", hint="examples: 512M, 1G")
    return bytes_


def _options(memory: str, workers: int | None, overwrite: bool, show: OnProgress) -> Options:
    from paceline.checkpoint.reshard import Options

    made = Options(memory=size(memory), overwrite=overwrite, progress=show)
    return replace(made, workers=workers) if workers else made


def _tell(outcome: Outcome, as_json: bool) -> None:
    for note in outcome.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        told = {
            "target": outcome.target, "files": outcome.files, "bytes": outcome.bytes, "same": outcome.same,
            "seconds": round(outcome.seconds, 3), "notes": outcome.notes,
        }  # fmt: skip
        typer.echo(json.dumps(told, ensure_ascii=False))
        return
    rate = outcome.bytes / outcome.seconds / 1e6 if outcome.seconds else 0.0
    there = f"; {outcome.same:,} were there already" if outcome.same else ""
    typer.echo(
        f"{outcome.target}: {outcome.files:,} files, {outcome.bytes / 1e6:,.1f} MB in {outcome.seconds:,.1f} s"
        f" ({rate:,.0f} MB/s){there}"
    )


def _open(place: Place, strategy: str | None, step: str | None) -> Checkpoint:
    from paceline.checkpoint.choice import parse_step
    from paceline.checkpoint.source import open_checkpoint
    from paceline.checkpoint.strategy import read_strategy

    return open_checkpoint(place, read_strategy(strategy), step=parse_step(step) if step else None)


def _show(checkpoint: Checkpoint, limit: int, as_json: bool) -> None:
    from paceline.checkpoint.inspect import Row, rows
    from paceline.cli.rows import format_rows

    found = rows(checkpoint)
    if as_json:
        told = [
            {"name": row.name, "dtype": row.dtype, "shape": row.shape, "bytes": row.bytes, "cuts": row.cuts,
             "ranks": {rank: {"start": box.start, "shape": box.shape} for rank, box in row.ranks.items()}}
            for row in found
        ]  # fmt: skip
        typer.echo(
            json.dumps({"source": checkpoint.url, "format": checkpoint.format, "tensors": told}, ensure_ascii=False)
        )
        return

    def cells(row: Row) -> tuple[str, ...]:
        cuts = "" if row.cuts is None else "×".join(map(str, row.cuts)) or "1"
        return row.name, row.dtype, str(list(row.shape)), f"{row.bytes / 1e6:,.3f}", cuts, _ranks(row.ranks)

    console = Console(highlight=False, soft_wrap=True)
    names = ("name", "type", "shape", "MB", "cut", "ranks")
    console.print(
        format_rows(names, [cells(row) for row in found[: limit or None]], right=frozenset({3})), markup=False
    )
    more = f" (shown: {limit}; --limit 0 for all)" if limit and len(found) > limit else ""
    total = sum(row.bytes for row in found)
    typer.echo(
        f"{checkpoint.format} · {len(checkpoint.ranks):,} ranks · {len(found):,} tensors, {total / 1e6:,.1f} MB as a whole{more}"
    )
    for note in checkpoint.notes:
        typer.echo(f"note: {note}", err=True)


def _ranks(ranks: Iterable[int]) -> str:
    """
    >>> _ranks([0, 1, 2, 5])
    '0-2,5'
    """
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _write(path: Path, data: bytes) -> None:
    with whole_file(path) as beside:
        beside.write_bytes(data)
