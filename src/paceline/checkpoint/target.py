"""The files of a new checkpoint: which tensors, or parts of them, each one gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.checkpoint import ckpt, mindformers, safetensors
from paceline.checkpoint.box import whole
from paceline.checkpoint.dtypes import TEXT
from paceline.checkpoint.frame import Frame, Wanted
from paceline.checkpoint.layout import Layout
from paceline.checkpoint.source import Checkpoint
from paceline.checkpoint.strategy import Strategy
from paceline.errors import PacelineError, UsageError

INDEXES = ("model.safetensors.index.json", "param_name_map.json")
"""The same under the names that Hugging Face and MindSpore look for."""
FORMATS = (ckpt.FORMAT, safetensors.FORMAT, mindformers.FORMAT)


@dataclass(frozen=True)
class Form:
    """How the new checkpoint is written."""

    format: str
    prefix: str = "checkpoint_"
    crc: bool = False
    shard_bytes: int = 0
    """Full weights in several files of about this size, with an index."""


def ranked_frames(
    source: Checkpoint, strategy: Strategy | None, form: Form, ranks: Sequence[int] | None = None
) -> list[Frame]:
    """A file per rank of the strategy; without one, rank 0 with everything."""
    count = strategy.ranks if strategy else 1
    chosen = range(count) if ranks is None else ranks
    if any(not 0 <= rank < count for rank in chosen):
        raise UsageError(f"rank {max(chosen)}: the target has ranks 0 to {count - 1}")
    if strategy is not None and not strategy.names & (set(source.parameters) | set(source.loose)):
        raise PacelineError(
            f"{source.url}: the target strategy names none of its tensors",
            hint="this strategy belongs to another model",
        )
    if form.format == mindformers.FORMAT:
        if ranks is not None:
            raise UsageError("a checkpoint 2.0 is written as a whole", hint="leave --rank out")
        return _version_two(source, strategy, form)
    made = []
    for rank in chosen:
        key = f"rank_{rank}/{form.prefix}{rank}.{form.format}"
        made.append(one_frame(key, tensors_of(source, strategy, rank), form, source.notes))
    return made


def tensors_of(source: Checkpoint, strategy: Strategy | None, rank: int) -> list[Wanted]:
    """What a rank gets: its parts of parameters, then what no strategy speaks of."""
    if strategy is None:
        return list(source.full().values())
    stage, local = strategy.stages[strategy.stage_of(rank)], rank % strategy.devices
    found = []
    for parameter in source.parameters.values():
        layout = stage.get(parameter.name)
        if layout is not None:
            found.append(source.wanted(parameter, layout.box(parameter.name, local, parameter.shape)))
        elif parameter.name not in strategy.names:
            found.append(source.wanted(parameter, whole(parameter.shape)))
    for name in source.loose:
        layout = stage.get(name)
        if layout is None and name in strategy.names:
            continue  # belongs to another pipeline stage
        if layout is not None and max(layout.cuts, default=1) > 1:
            raise PacelineError(
                f"{name}: the target strategy cuts it, the source strategy does not know it",
                hint="is this the right source strategy?",
            )
        found.append(source.loose_copy(name, local))
    return found


def full_frames(tensors: Iterable[Wanted], name: str, form: Form, notes: list[str]) -> list[Frame]:
    """Full weights in one file of this name (without suffix), or in several with an index."""
    wanted = list(tensors)
    if not form.shard_bytes:
        return [one_frame(f"{name}.{form.format}", wanted, form, notes)]
    if form.format != safetensors.FORMAT:
        raise UsageError("only safetensors are written in several files", hint="add --format safetensors")
    groups: list[list[Wanted]] = [[]]
    for tensor in _without_text(wanted, notes):
        if groups[-1] and sum(each.bytes for each in groups[-1]) + tensor.bytes > form.shard_bytes:
            groups.append([])
        groups[-1].append(tensor)
    keys = [f"model-{number:05d}-of-{len(groups):05d}.safetensors" for number in range(1, len(groups) + 1)]
    where = {tensor.name: key for key, group in zip(keys, groups, strict=True) for tensor in group}
    total = sum(tensor.bytes for group in groups for tensor in group)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    made = [safetensors.frame(key, group) for key, group in zip(keys, groups, strict=True)]
    text = json.dumps(index, indent=2, ensure_ascii=False).encode()
    return [*made, *(text_frame(name, text) for name in INDEXES)]


def one_frame(key: str, tensors: Iterable[Wanted], form: Form, notes: list[str]) -> Frame:
    if form.format == ckpt.FORMAT:
        return ckpt.frame(key, tensors, crc=form.crc)
    if form.format != safetensors.FORMAT:
        raise UsageError(f"{form.format}: is no format to write", hint=f"known: {', '.join(FORMATS)}")
    if form.crc:
        raise UsageError("safetensors have no CRC trailer", hint="leave --crc out, or use --format ckpt")
    return safetensors.frame(key, _without_text(tensors, notes))


def text_frame(key: str, data: bytes) -> Frame:
    made = Frame(key)
    made.literal(data)
    return made


def _version_two(source: Checkpoint, strategy: Strategy | None, form: Form) -> list[Frame]:
    count = strategy.ranks if strategy else 1
    prefix = form.prefix.rstrip("_-")
    made: list[tuple[int, Frame, list[Wanted]]] = []
    layouts: dict[str, Layout | None] = {}
    for rank in range(count):
        stage = strategy.stages[strategy.stage_of(rank)] if strategy else {}
        layouts.update({name: layout for name, layout in stage.items() if layout.shard_count == 1})
        tensors = _without_text(tensors_of(source, strategy, rank), source.notes)
        for optimizer in (False, True):
            group = [tensor for tensor in tensors if mindformers.is_optimizer(tensor.name) == optimizer]
            if group:
                key = mindformers.file_name(prefix, rank, count, optimizer=optimizer)
                made.append((rank, safetensors.frame(key, group), group))
    shapes = {name: parameter.shape for name, parameter in source.parameters.items()}
    shapes |= {name: next(iter(copies.values())).box.shape for name, copies in source.loose.items()}
    frames = [frame for _, frame, _ in made]
    common = source.common or b"{}"
    metadata = mindformers.metadata(made, shapes, layouts)
    return [*frames, text_frame(mindformers.COMMON, common), text_frame(mindformers.METADATA, metadata)]


def _without_text(tensors: Iterable[Wanted], notes: list[str]) -> list[Wanted]:
    kept = []
    for tensor in tensors:
        if tensor.dtype.name == TEXT:
            note = f"{tensor.name} is text, which safetensors cannot hold: left out"
            if note not in notes:
                notes.append(note)
        else:
            kept.append(tensor)
    return kept
