"""From one parallel layout to another, from one format to another: what the commands call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from paceline.checkpoint import ckpt, lora, mindformers, safetensors
from paceline.checkpoint.box import whole
from paceline.checkpoint.choice import parse_step
from paceline.checkpoint.files import opened
from paceline.checkpoint.frame import Frame, Piece, Wanted
from paceline.checkpoint.reshard import Options, Outcome, write_frames
from paceline.checkpoint.source import Checkpoint, open_checkpoint
from paceline.checkpoint.strategy import read_strategy
from paceline.checkpoint.target import Form, full_frames, one_frame, ranked_frames
from paceline.errors import UsageError
from paceline.storage.location import parse


@dataclass(frozen=True)
class Request:
    """Where from, where to, and how it is written; strategies are files, directories or None (full weights)."""

    source: str
    target: str
    source_strategy: str | None = None
    target_strategy: str | None = None
    step: str | None = None
    """EPOCH_STEP; the newest that is complete otherwise."""
    once: bool = False
    """Of equal parts the source holds only one (remove_redundancy); safetensors say so themselves."""
    format: str | None = None
    prefix: str = "checkpoint_"
    crc: bool = False
    shard_bytes: int = 0
    options: Options = field(default_factory=Options)


def transform(request: Request, ranks: Sequence[int] | None = None) -> Outcome:
    """Cut a checkpoint anew: every rank of the target strategy, or just some."""
    strategy = read_strategy(request.target_strategy)
    with opened(request.source, memory=request.options.memory // 2) as place:
        source = open_checkpoint(place, read_strategy(request.source_strategy), step=_step(request), once=request.once)
        need_strategy(source)
        form = _form(request, source)
        if strategy is None and form.shard_bytes:
            frames = full_frames(source.full().values(), "model", form, source.notes)
        else:
            frames = ranked_frames(source, strategy, form, ranks)
        return _write(frames, source, request)


def merge_lora(request: Request, scale: float) -> Outcome:
    """Full weights with LoRA added to them: merged_lora.ckpt (or .safetensors)."""
    with opened(request.source, memory=request.options.memory // 2) as place:
        source = open_checkpoint(place, read_strategy(request.source_strategy), step=_step(request), once=request.once)
        need_strategy(source)
        tensors = lora.merged(source.full(), scale)
        return _write(full_frames(tensors, "merged_lora", _form(request, source), source.notes), source, request)


def convert(request: Request) -> Outcome:
    """Every file in another format, the layout as it is."""
    with opened(request.source, memory=request.options.memory // 2) as place:
        source = open_checkpoint(place, step=_step(request))
        form = _form(request, source)
        if form.format == mindformers.FORMAT:
            raise UsageError(
                "a checkpoint 2.0 needs the strategy", hint="paceline checkpoint transform --format mindformers"
            )
        if form.shard_bytes:
            if source.loose:
                raise UsageError(
                    "ranks cannot be converted into one checkpoint", hint="use paceline checkpoint transform"
                )
            return _write(full_frames(source.full().values(), "model", form, source.notes), source, request)
        return _write(_converted(source, form), source, request)


def _converted(source: Checkpoint, form: Form) -> list[Frame]:
    made = []
    many = len(source.ranks) > 1
    for rank, container in source.containers:
        stem = PurePosixPath(container.file.name).stem
        folder = f"rank_{rank}/" if many else ""
        tensors = [
            Wanted(name, stored.dtype, box, [Piece(box, container, stored)], order)
            for order, (name, stored) in enumerate(container.tensors.items())
            for box in [whole(stored.shape)]
        ]
        made.append(one_frame(f"{folder}{stem}.{form.format}", tensors, form, source.notes))
    return made


def _write(frames: list[Frame], source: Checkpoint, request: Request) -> Outcome:
    if parse(request.source).url == parse(request.target).url:
        raise UsageError(f"{request.target}: is the source", hint="give another directory")
    outcome = write_frames(frames, parse(request.source).url, request.target, request.options)
    outcome.notes = source.notes
    return outcome


def need_strategy(source: Checkpoint) -> None:
    if source.strategy is None and source.loose:
        raise UsageError(
            f"{source.url}: {len(source.ranks)} ranks, and no source strategy",
            hint="give it (paceline checkpoint strategy writes one), or one rank's directory, if it holds everything",
        )


def _form(request: Request, source: Checkpoint) -> Form:
    known = {ckpt.FORMAT: ckpt.FORMAT, safetensors.FORMAT: safetensors.FORMAT}
    chosen = request.format or known.get(source.format, safetensors.FORMAT)
    return Form(chosen, request.prefix, request.crc, request.shard_bytes)


def _step(request: Request) -> tuple[int, int] | None:
    return parse_step(request.step) if request.step else None
