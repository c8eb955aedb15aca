"""Reshard a checkpoint to another parallel layout, convert it to another format, merge LoRA weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from paceline.checkpoint import lora
from paceline.checkpoint.formats import ckpt, mindformers_v2, safetensors
from paceline.checkpoint.plan.file_plan import FilePlan, Piece, PlannedTensor
from paceline.checkpoint.reshard import WriteOptions, WriteResult, write_files
from paceline.checkpoint.select_step import parse_step
from paceline.checkpoint.source_checkpoint import Checkpoint, open_checkpoint
from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.checkpoint.target_files import OutputFormat, plan_full_files, plan_one_file, plan_rank_files
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.tensors.tensor_slice import full_slice
from paceline.core.errors import UsageError
from paceline.storage.url import parse_url


@dataclass(frozen=True)
class TransformRequest:
    """Source, target and output format. A strategy is a file, a directory of files, or None (full weights)."""

    source: str
    target: str
    source_strategy: str | None = None
    target_strategy: str | None = None
    step: str | None = None
    """EPOCH_STEP; default: the newest complete checkpoint."""
    deduplicated: bool = False
    """The source was saved without replicas (remove_redundancy); detected automatically for safetensors."""
    format: str | None = None
    prefix: str = "checkpoint_"
    crc: bool = False
    shard_bytes: int = 0
    options: WriteOptions = field(default_factory=WriteOptions)


def transform(request: TransformRequest, ranks: Sequence[int] | None = None) -> WriteResult:
    """Reshard a checkpoint: for every rank of the target strategy, or only for `ranks`."""
    strategy = read_strategy(request.target_strategy)
    with _open_source(request) as source:
        require_strategy(source)
        output = _output_format(request, source)
        if strategy is None and output.shard_bytes:
            file_plans = plan_full_files(source.full_tensors().values(), "model", output, source.notes)
        else:
            file_plans = plan_rank_files(source, strategy, output, ranks)
        return _write(file_plans, source, request)


def merge_lora(request: TransformRequest, scale: float) -> WriteResult:
    """Write full weights with the LoRA weights added: merged_lora.ckpt (or .safetensors)."""
    with _open_source(request) as source:
        require_strategy(source)
        tensors = lora.merge_lora_tensors(source.full_tensors(), scale)
        output = _output_format(request, source)
        return _write(plan_full_files(tensors, "merged_lora", output, source.notes), source, request)


def convert(request: TransformRequest) -> WriteResult:
    """Write every file in another format; the parallel layout stays the same."""
    with _open_source(request) as source:
        output = _output_format(request, source)
        if output.format == mindformers_v2.FORMAT:
            raise UsageError(
                "writing a MindFormers 2.0 checkpoint needs the strategy",
                hint="use paceline checkpoint transform --format mindformers",
            )
        if output.shard_bytes:
            if source.unlisted:
                raise UsageError(
                    "convert cannot join the files of several ranks", hint="use paceline checkpoint transform"
                )
            file_plans = plan_full_files(source.full_tensors().values(), "model", output, source.notes)
            return _write(file_plans, source, request)
        return _write(_plan_converted_files(source, output), source, request)


def require_strategy(source: Checkpoint) -> None:
    if source.strategy is None and source.unlisted:
        raise UsageError(
            f"{source.url}: holds {len(source.ranks)} ranks, but no source strategy was given",
            hint="pass the strategy (paceline checkpoint strategy writes one), or a single rank's directory "
            "if it holds full weights",
        )


@contextmanager
def _open_source(request: TransformRequest) -> Iterator[Checkpoint]:
    strategy = read_strategy(request.source_strategy)
    step = parse_step(request.step) if request.step else None
    with open_listing(request.source, memory=request.options.memory // 2) as listing:
        yield open_checkpoint(listing, strategy, step=step, deduplicated=request.deduplicated)


def _output_format(request: TransformRequest, source: Checkpoint) -> OutputFormat:
    same = source.format if source.format in (ckpt.FORMAT, safetensors.FORMAT) else safetensors.FORMAT
    return OutputFormat(request.format or same, request.prefix, request.crc, request.shard_bytes)


def _plan_converted_files(source: Checkpoint, output: OutputFormat) -> list[FilePlan]:
    file_plans = []
    many = len(source.ranks) > 1
    for rank, container in source.containers:
        stem = PurePosixPath(container.file.name).stem
        folder = f"rank_{rank}/" if many else ""
        tensors = [
            PlannedTensor(name, stored.dtype, full, [Piece(full, container, stored)], order)
            for order, (name, stored) in enumerate(container.tensors.items())
            for full in [full_slice(stored.shape)]
        ]
        file_plans.append(plan_one_file(f"{folder}{stem}.{output.format}", tensors, output, source.notes))
    return file_plans


def _write(file_plans: list[FilePlan], source: Checkpoint, request: TransformRequest) -> WriteResult:
    if parse_url(request.source).text == parse_url(request.target).text:
        raise UsageError(f"{request.target}: target and source are the same", hint="choose another target directory")
    result = write_files(file_plans, parse_url(request.source).text, request.target, request.options)
    result.notes = source.notes
    return result
