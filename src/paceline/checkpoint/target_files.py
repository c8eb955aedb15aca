"""Plan the files of a new checkpoint: which tensors, or slices of them, each file holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.formats import ckpt, mindformers_v2, safetensors, torch_dcp, torch_dcp_files
from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor
from paceline.checkpoint.strategy.strategy import Strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensors.dtypes import TEXT
from paceline.checkpoint.tensors.tensor_slice import full_slice
from paceline.core.errors import PacelineError, UsageError
from paceline.core.zip_strict import zip_strict

INDEXES = ("model.safetensors.index.json", "param_name_map.json")
"""Names of the index in Hugging Face and MindSpore; both get the same content."""
HUGGINGFACE = "huggingface"
"""Full weights as Hugging Face's from_pretrained reads them: safetensors in several files, with an index."""
HUGGINGFACE_SHARD = 5_000_000_000
FORMATS = (ckpt.FORMAT, safetensors.FORMAT, mindformers_v2.FORMAT, torch_dcp.FORMAT, HUGGINGFACE)


@dataclass(frozen=True)
class OutputFormat:
    """Format options of the new checkpoint."""

    format: str
    prefix: str = "checkpoint_"
    crc: bool = False
    shard_bytes: int = 0
    """Split full weights into files of about this size, with an index; 0: one file."""


def plan_rank_files(
    source: Checkpoint, strategy: Strategy | None, output: OutputFormat, ranks: Sequence[int] | None = None
) -> list[FilePlan]:
    """A file per rank of the strategy; without a strategy, rank 0 with all tensors."""
    count = strategy.ranks if strategy else 1
    selected = range(count) if ranks is None else ranks
    if any(not 0 <= rank < count for rank in selected):
        raise UsageError(f"invalid rank {max(selected)}: the target has ranks 0 to {count - 1}")
    if strategy is not None and not strategy.names & (set(source.parameters) | set(source.unlisted)):
        raise PacelineError(
            f"{source.url}: the target strategy lists none of its tensors",
            hint="this strategy belongs to another model",
        )
    if output.format == mindformers_v2.FORMAT:
        if ranks is not None:
            raise UsageError("a MindFormers 2.0 checkpoint can only be written for all ranks", hint="omit --rank")
        return _plan_mindformers_v2(source, strategy, output)
    if output.format == torch_dcp.FORMAT:
        if ranks is not None:
            raise UsageError("a torch DCP checkpoint can only be written for all ranks", hint="omit --rank")
        return plan_dcp_files(source, [(rank, tensors_of_rank(source, strategy, rank)) for rank in range(count)])
    file_plans = []
    for rank in selected:
        key = f"rank_{rank}/{output.prefix}{rank}.{output.format}"
        file_plans.append(plan_one_file(key, tensors_of_rank(source, strategy, rank), output, source.notes))
    return file_plans


def plan_dcp_files(source: Checkpoint, ranks: Sequence[tuple[int, Iterable[PlannedTensor]]]) -> list[FilePlan]:
    kept = [(rank, _without_text(tensors, source.notes)) for rank, tensors in ranks]
    return torch_dcp_files.plan_files(kept, source.shapes, source.objects, source.paths)


def tensors_of_rank(source: Checkpoint, strategy: Strategy | None, rank: int) -> list[PlannedTensor]:
    """Tensors of a rank: its slices of the parameters, then the tensors the strategy does not list."""
    if strategy is None:
        return list(source.full_tensors().values())
    stage, local = strategy.stages[strategy.stage_of(rank)], rank % strategy.devices
    found = []
    for parameter in source.parameters.values():
        layout = stage.get(parameter.name)
        if layout is not None:
            found.append(source.plan_tensor(parameter, layout.rank_slice(parameter.name, local, parameter.shape)))
        elif parameter.name not in strategy.names:
            found.append(source.plan_tensor(parameter, full_slice(parameter.shape)))
    for name in source.unlisted:
        layout = stage.get(name)
        if layout is None and name in strategy.names:
            continue  # belongs to another pipeline stage
        if layout is not None and max(layout.cuts, default=1) > 1:
            raise PacelineError(
                f"{name}: sharded by the target strategy, but not listed in the source strategy",
                hint="check that the source strategy belongs to this checkpoint",
            )
        found.append(source.plan_unlisted(name, local))
    return found


def plan_full_files(
    tensors: Iterable[PlannedTensor], name: str, output: OutputFormat, notes: list[str]
) -> list[FilePlan]:
    """Full weights in one file of this name (without suffix), or in several files with an index."""
    listed = list(tensors)
    huggingface = output.format == HUGGINGFACE
    if not output.shard_bytes and not huggingface:
        return [plan_one_file(f"{name}.{output.format}", listed, output, notes)]
    if output.format not in (safetensors.FORMAT, HUGGINGFACE):
        raise UsageError("only safetensors can be split into several files", hint="add --format safetensors")
    groups = _in_shards(_without_text(listed, notes), output.shard_bytes or HUGGINGFACE_SHARD)
    metadata = {"format": "pt"} if huggingface else None  # transformers refuses other names
    if huggingface and len(groups) == 1:
        return [safetensors.plan_file("model.safetensors", groups[0], metadata)]
    keys = [f"model-{number:05d}-of-{len(groups):05d}.safetensors" for number in range(1, len(groups) + 1)]
    where = {tensor.name: key for key, group in zip_strict(keys, groups) for tensor in group}
    total = sum(tensor.bytes for group in groups for tensor in group)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    made = [safetensors.plan_file(key, group, metadata) for key, group in zip_strict(keys, groups)]
    text = json.dumps(index, indent=2, ensure_ascii=False).encode()
    return [*made, *(plan_text_file(name, text) for name in (INDEXES[:1] if huggingface else INDEXES))]


def _in_shards(tensors: Iterable[PlannedTensor], most: int) -> list[list[PlannedTensor]]:
    groups: list[list[PlannedTensor]] = [[]]
    for tensor in tensors:
        if groups[-1] and sum(each.bytes for each in groups[-1]) + tensor.bytes > most:
            groups.append([])
        groups[-1].append(tensor)
    return groups


def plan_one_file(key: str, tensors: Iterable[PlannedTensor], output: OutputFormat, notes: list[str]) -> FilePlan:
    if output.format == ckpt.FORMAT:
        return ckpt.plan_file(key, tensors, crc=output.crc)
    if output.format != safetensors.FORMAT:
        raise UsageError(f"unsupported output format: {output.format}", hint=f"known: {', '.join(FORMATS)}")
    if output.crc:
        raise UsageError("safetensors files have no CRC trailer", hint="omit --crc, or use --format ckpt")
    return safetensors.plan_file(key, _without_text(tensors, notes))


def plan_text_file(key: str, data: bytes) -> FilePlan:
    made = FilePlan(key)
    made.add_bytes(data)
    return made


def _plan_mindformers_v2(source: Checkpoint, strategy: Strategy | None, output: OutputFormat) -> list[FilePlan]:
    count = strategy.ranks if strategy else 1
    prefix = output.prefix.rstrip("_-")
    made: list[tuple[int, FilePlan, list[PlannedTensor]]] = []
    layouts: dict[str, TensorLayout | None] = {}
    for rank in range(count):
        stage = strategy.stages[strategy.stage_of(rank)] if strategy else {}
        layouts.update({name: layout for name, layout in stage.items() if layout.shard_count == 1})
        tensors = _without_text(tensors_of_rank(source, strategy, rank), source.notes)
        for optimizer in (False, True):
            group = [tensor for tensor in tensors if mindformers_v2.is_optimizer(tensor.name) == optimizer]
            if group:
                key = mindformers_v2.file_name(prefix, rank, count, optimizer=optimizer)
                made.append((rank, safetensors.plan_file(key, group), group))
    file_plans = [file_plan for _, file_plan, _ in made]
    common = source.common or b"{}"
    metadata = mindformers_v2.metadata(made, source.shapes, layouts)
    return [
        *file_plans,
        plan_text_file(mindformers_v2.COMMON, common),
        plan_text_file(mindformers_v2.METADATA, metadata),
    ]


def _without_text(tensors: Iterable[PlannedTensor], notes: list[str]) -> list[PlannedTensor]:
    kept = []
    for tensor in tensors:
        if tensor.dtype.name == TEXT:
            note = f"{tensor.name} was left out: safetensors cannot store text"
            if note not in notes:
                notes.append(note)
        else:
            kept.append(tensor)
    return kept
