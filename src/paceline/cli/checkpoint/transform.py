"""`paceline checkpoint transform`, `convert` and `merge-lora`: write a checkpoint in another layout or format."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.checkpoint.options import (
    STRATEGY_HELP,
    JsonOption,
    NoReplicasOption,
    SourceArgument,
    StepOption,
    StrategyOption,
    parse_size,
)
from paceline.cli.console.transfer_output import progress_bar
from paceline.core.str_enum import StrEnum
from paceline.storage.transfer.transfer_report import OnProgress

if TYPE_CHECKING:
    from paceline.checkpoint.reshard import WriteOptions, WriteResult


class CheckpointFormat(StrEnum):
    ckpt = "ckpt"
    safetensors = "safetensors"
    mindformers = "mindformers"
    dcp = "dcp"
    huggingface = "huggingface"


TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="Directory, s3:// or obs://.")]
FormatOption = Annotated[
    Optional[CheckpointFormat], typer.Option("--format", help="Format to write.  [default: the source's]")
]
ShardSizeOption = Annotated[
    Optional[str],
    typer.Option(
        "--shard-size", help="Split full safetensors into files of this size, with an index (3G; huggingface: 5 GB)."
    ),
]
BelowOption = Annotated[
    Optional[str],
    typer.Option("--below", help="Only entries below this name, removed from theirs: model, of model.… and optim.…"),
]
CrcOption = Annotated[bool, typer.Option("--crc", help="Append a checksum to .ckpt files.")]
MemoryOption = Annotated[str, typer.Option("--memory", help="Memory to use at most.")]
WorkersOption = Annotated[
    Optional[int], typer.Option("--workers", min=1, max=64, help="Threads.  [default: cores, at most 4]")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that already exist with other content.")
]


def transform(
    src_ckpt_dir: Annotated[
        str,
        typer.Option("--src_ckpt_dir", "--src-ckpt-dir", help="Checkpoint: rank_* directories, a file, s3://, obs://."),
    ],
    dst_ckpt_dir: Annotated[
        str, typer.Option("--dst_ckpt_dir", "--dst-ckpt-dir", help="Directory, s3:// or obs:// to write to.")
    ],
    src_ckpt_strategy: Annotated[
        Optional[str], typer.Option("--src_ckpt_strategy", "--src-ckpt-strategy", help=STRATEGY_HELP)
    ] = None,
    dst_ckpt_strategy: Annotated[
        Optional[str], typer.Option("--dst_ckpt_strategy", "--dst-ckpt-strategy", help=STRATEGY_HELP)
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Files become rank_N/{prefix}N.ckpt.")] = "checkpoint_",
    rank: Annotated[
        Optional[List[int]], typer.Option("--rank", min=0, help="Only this rank of the target; may be repeated.")
    ] = None,
    format: FormatOption = None,
    step: StepOption = None,
    shard_size: ShardSizeOption = None,
    below: BelowOption = None,
    crc: CrcOption = False,
    once: NoReplicasOption = False,
    memory: MemoryOption = "1G",
    workers: WorkersOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Reshard a checkpoint to another parallel layout: in constant memory, resumable, files written atomically.

    Example:  paceline checkpoint transform --src_ckpt_strategy strategy/ --dst_ckpt_strategy tp4.ckpt \\
              --src_ckpt_dir output/checkpoint --dst_ckpt_dir output/tp4
    """
    from paceline.checkpoint.transform import TransformRequest
    from paceline.checkpoint.transform import transform as run

    with progress_bar("writing") as show:
        request = TransformRequest(
            source=src_ckpt_dir,
            target=dst_ckpt_dir,
            source_strategy=src_ckpt_strategy,
            target_strategy=dst_ckpt_strategy,
            step=step,
            deduplicated=once,
            format=format.value if format else None,
            prefix=prefix,
            crc=crc,
            shard_bytes=parse_size(shard_size) if shard_size else 0,
            below=below,
            options=_options(memory, workers, overwrite, show),
        )
        outcome = run(request, rank or None)
    _print_outcome(outcome, as_json)


def convert(
    source: SourceArgument,
    target: TargetArgument,
    format: Annotated[CheckpointFormat, typer.Option("--format", help="Format to write.")],
    step: StepOption = None,
    shard_size: ShardSizeOption = None,
    below: BelowOption = None,
    crc: CrcOption = False,
    memory: MemoryOption = "1G",
    workers: WorkersOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the same tensors in another format; reads .ckpt, safetensors, checkpoint 2.0, torch's .pt and DCP (.distcp).

    Example:  paceline checkpoint convert output/checkpoint output/safetensors --format safetensors
    Example:  paceline checkpoint convert step-500 weights --format huggingface --below model
    """
    from paceline.checkpoint.transform import TransformRequest
    from paceline.checkpoint.transform import convert as run

    with progress_bar("converting") as show:
        request = TransformRequest(
            source=source,
            target=target,
            step=step,
            format=format.value,
            crc=crc,
            shard_bytes=parse_size(shard_size) if shard_size else 0,
            below=below,
            options=_options(memory, workers, overwrite, show),
        )
        outcome = run(request)
    _print_outcome(outcome, as_json)


def merge_lora(
    source: SourceArgument,
    target: TargetArgument,
    scaling: Annotated[float, typer.Option("--lora_scaling", "--scaling", help="lora_alpha / lora_rank.")] = 1.0,
    strategy: StrategyOption = None,
    format: FormatOption = None,
    step: StepOption = None,
    once: NoReplicasOption = False,
    memory: MemoryOption = "1G",
    workers: WorkersOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge LoRA weights into their base weights (W + scaling · B · A), written as full weights: merged_lora.ckpt.

    Example:  paceline checkpoint merge-lora output/checkpoint merged --strategy strategy/ --scaling 2
    """
    from paceline.checkpoint.transform import TransformRequest
    from paceline.checkpoint.transform import merge_lora as run

    with progress_bar("merging") as show:
        request = TransformRequest(
            source=source,
            target=target,
            source_strategy=strategy,
            step=step,
            deduplicated=once,
            format=format.value if format else None,
            options=_options(memory, workers, overwrite, show),
        )
        outcome = run(request, scaling)
    _print_outcome(outcome, as_json)


def _options(memory: str, workers: int | None, overwrite: bool, show: OnProgress) -> WriteOptions:
    from paceline.checkpoint.reshard import WriteOptions

    options = WriteOptions(memory=parse_size(memory), overwrite=overwrite, progress=show)
    return replace(options, workers=workers) if workers else options


def _print_outcome(outcome: WriteResult, as_json: bool) -> None:
    for note in outcome.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        document = {
            "target": outcome.target,
            "files": outcome.files,
            "bytes": outcome.bytes,
            "same": outcome.same,
            "seconds": round(outcome.seconds, 3),
            "notes": outcome.notes,
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    rate = outcome.bytes / outcome.seconds / 1e6 if outcome.seconds else 0.0
    existing = f"; {outcome.same:,} already existed" if outcome.same else ""
    typer.echo(
        f"{outcome.target}: {outcome.files:,} files, {outcome.bytes / 1e6:,.1f} MB in {outcome.seconds:,.1f} s"
        f" ({rate:,.0f} MB/s){existing}"
    )
