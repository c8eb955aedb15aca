"""Which rank a profile belongs to: device, pipeline stage and communication groups, from profiler_info and metadata."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.json_files import decode_file
from paceline.formats.parallel_groups import ParallelGroup, add_groups


class _Sizes(msgspec.Struct):
    pipeline_model_parallel_size: int = 1
    world_size: int = 0
    rank: int | None = None


class _Metadata(msgspec.Struct):
    parallel_group_info: dict[str, ParallelGroup] = {}
    distributed_args: _Sizes | None = None


class _MindSporeInfo(msgspec.Struct):
    device_id: int | str | None = None
    rank_id: int | str | None = None


class _Info(msgspec.Struct):
    ms_profiler_info: _MindSporeInfo | None = None
    rank_id: int | str | None = None


_METADATA = msgspec.json.Decoder(_Metadata)
_INFO = msgspec.json.Decoder(_Info)


@dataclass(frozen=True)
class Identity:
    """What is known without opening a file, and the files with more."""

    rank: int
    host: str | None
    device: int | None
    info: Path | None
    metadata: Path | None


def read_identity(identity: Identity, sink: Sink) -> None:
    """Rows of `ranks` (one) and `groups`."""
    info = decode_file(_INFO, identity.info) if identity.info else _Info()
    metadata = decode_file(_METADATA, identity.metadata) if identity.metadata else _Metadata()
    device = identity.device
    if device is None and info.ms_profiler_info and info.ms_profiler_info.device_id is not None:
        device = int(info.ms_profiler_info.device_id)
    sink.add("ranks", {"host": identity.host, "device": device, "stage": _stage(metadata)})
    recorded = info.rank_id if info.ms_profiler_info is None else info.ms_profiler_info.rank_id
    if (named := str(recorded)).isdecimal() and int(named) != identity.rank:
        sink.warn(message("of_rank", n=named), file=identity.info)
    add_groups(metadata.parallel_group_info, sink)
    groups = [group.global_ranks for group in metadata.parallel_group_info.values() if group.global_ranks]
    if any(identity.rank not in members for members in groups):
        sink.warn(message("groups_without"), file=identity.metadata)


def _stage(metadata: _Metadata) -> int | None:
    """rank // (world / pp) in Megatron's order; otherwise the Run derives it from the pipeline groups (run/tables/views.py)."""
    sizes = metadata.distributed_args
    if sizes and sizes.rank is not None and sizes.pipeline_model_parallel_size > 1 and sizes.world_size > 0:
        return sizes.rank // max(1, sizes.world_size // sizes.pipeline_model_parallel_size)
    return 0 if sizes and sizes.pipeline_model_parallel_size == 1 and sizes.world_size else None
