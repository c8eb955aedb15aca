"""Reshard a checkpoint to another parallel layout, convert it to another format, merge LoRA weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from paceline.checkpoint import lora
from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.formats import ckpt, mindformers_v2, safetensors, torch_dcp
from paceline.checkpoint.plan.file_plan import FilePlan, Piece, PlannedTensor
from paceline.checkpoint.rank_copies import require_same_values
from paceline.checkpoint.reshard import WriteOptions, WriteResult, write_files
from paceline.checkpoint.select_step import parse_step
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.checkpoint.target_files import (
    HUGGINGFACE,
    OutputFormat,
    plan_dcp_files,
    plan_full_files,
    plan_one_file,
    plan_rank_files,
)
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
    below: str | None = None
    """Only entries below this name, which is removed from theirs: "model" of a checkpoint with model and optimizer."""
    options: WriteOptions = field(default_factory=WriteOptions)


def transform(request: TransformRequest, ranks: Sequence[int] | None = None) -> WriteResult:
    """Reshard a checkpoint: for every rank of the target strategy, or only for `ranks`."""
    strategy = read_strategy(request.target_strategy)
    with _open_source(request) as source:
        require_strategy(source)
        output = _output_format(request, source)
        if output.format == HUGGINGFACE and strategy is not None:
            raise UsageError("Hugging Face's files hold full weights", hint="omit --dst_ckpt_strategy")
        if strategy is None and (output.shard_bytes or output.format == HUGGINGFACE):
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
        if output.format == torch_dcp.FORMAT:
            return _write(plan_dcp_files(source, [(0, tensors)]), source, request)
        return _write(plan_full_files(tensors, "merged_lora", output, source.notes), source, request)


def convert(request: TransformRequest) -> WriteResult:
    """Write every file in another format, in the same parallel layout; torch DCP and Hugging Face: full weights."""
    with _open_source(request) as source:
        output = _output_format(request, source)
        if output.format == mindformers_v2.FORMAT:
            raise UsageError(
                "writing a MindFormers 2.0 checkpoint needs the strategy",
                hint="use paceline checkpoint transform --format mindformers",
            )
        full = torch_dcp.FORMAT in (output.format, source.format) or output.format == HUGGINGFACE
        if full or output.shard_bytes or request.below:
            if source.unlisted:
                raise UsageError(
                    "convert cannot join the files of several ranks", hint="use paceline checkpoint transform"
                )
            require_same_values(source)
            return _write(_plan_full(source, output), source, request)
        return _write(_plan_converted_files(source, output), source, request)


def _plan_full(source: Checkpoint, output: OutputFormat) -> list[FilePlan]:
    tensors = source.full_tensors().values()
    if output.format == torch_dcp.FORMAT:
        return plan_dcp_files(source, [(0, tensors)])
    return plan_full_files(tensors, "model", output, source.notes)


def require_strategy(source: Checkpoint) -> None:
    if source.strategy is None and source.unlisted:
        raise UsageError(
            f"{source.url}: holds {len(source.ranks)} ranks, but no source strategy was given",
            hint="pass the strategy (paceline checkpoint strategy writes one), or a single rank's directory "
            "if it holds full weights",
        )
    require_same_values(source)


@contextmanager
def _open_source(request: TransformRequest) -> Iterator[Checkpoint]:
    strategy = read_strategy(request.source_strategy)
    step = parse_step(request.step) if request.step else None
    with open_listing(request.source, memory=request.options.memory // 2) as listing:
        checkpoint = open_checkpoint(listing, strategy, step=step, deduplicated=request.deduplicated)
        if request.below:
            checkpoint.keep_below(request.below)
        yield checkpoint


def _output_format(request: TransformRequest, source: Checkpoint) -> OutputFormat:
    same = source.format if source.format in (ckpt.FORMAT, safetensors.FORMAT, torch_dcp.FORMAT) else safetensors.FORMAT
    output = OutputFormat(request.format or same, request.prefix, request.crc, request.shard_bytes)
    if source.objects and output.format != torch_dcp.FORMAT:
        names = ", ".join(list(source.objects)[:3]) + (" …" if len(source.objects) > 3 else "")
        source.notes.append(f"{len(source.objects)} entries that are not tensors were left out: {names}")
    return output


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
