"""Who a profile belongs to: host, device, stage and communication groups, from profiler_info and metadata."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.formats.ascend_communication import decode_file
from paceline.formats.collective_names import group_hash, group_kind
from paceline.formats.reader import Sink

LARGEST_FULL_GROUP = 256
"""Groups up to this size are written out by every member; of larger ones only member 0 lists all, to stay linear."""


class _Group(msgspec.Struct):
    group_name: str = ""
    group_rank: int | None = None
    global_ranks: list[int] = []


class _Sizes(msgspec.Struct):
    pipeline_model_parallel_size: int = 1
    world_size: int = 0
    rank: int | None = None


class _Metadata(msgspec.Struct):
    parallel_group_info: dict[str, _Group] = {}
    distributed_args: _Sizes | None = None


class _MindSporeInfo(msgspec.Struct):
    rank_id: int | str | None = None
    device_id: int | str | None = None


class _Info(msgspec.Struct):
    rank_id: int | str | None = None
    ms_profiler_info: _MindSporeInfo | None = None


_METADATA = msgspec.json.Decoder(_Metadata)
_INFO = msgspec.json.Decoder(_Info)


@dataclass(frozen=True)
class Identity:
    """What is known of a profile before any file is opened, and the files that tell more."""

    host: str | None
    device: int | None
    info: Path | None
    metadata: Path | None


def read_identity(identity: Identity, sink: Sink) -> None:
    """ranks (one row) and groups."""
    info = decode_file(_INFO, identity.info) if identity.info else _Info()
    metadata = decode_file(_METADATA, identity.metadata) if identity.metadata else _Metadata()
    device = identity.device
    if device is None and info.ms_profiler_info and info.ms_profiler_info.device_id is not None:
        device = int(info.ms_profiler_info.device_id)
    sink.add("ranks", {"host": identity.host, "device": device, "stage": _stage(metadata)})
    add_groups(metadata.parallel_group_info, sink)


def decode_groups(text: str | bytes) -> dict[str, _Group]:
    """parallel_group_info as it lies in metadata, in JSON or in a database cell."""
    return msgspec.json.decode(text, type=dict[str, _Group])


def add_groups(groups: dict[str, _Group], sink: Sink) -> None:
    """groups rows; the id is hashed, because that is how collectives spell it."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for identifier, group in groups.items():
        if len(group.global_ranks) > LARGEST_FULL_GROUP and group.group_rank:
            members = [(group.group_rank, group.global_ranks[group.group_rank])]
        else:
            members = list(enumerate(group.global_ranks))
        for index, rank in members:
            columns["group"].append(group_hash(identifier))
            columns["kind"].append(group_kind(group.group_name))
            columns["index"].append(index)
            columns["rank"].append(rank)
    if columns:
        sink.add("groups", columns)


def _stage(metadata: _Metadata) -> int | None:
    """rank // (world / pp) in Megatron's order; else the Run works it out from the pipeline groups (run/views.py)."""
    sizes = metadata.distributed_args
    if sizes and sizes.rank is not None and sizes.pipeline_model_parallel_size > 1 and sizes.world_size > 0:
        return sizes.rank // max(1, sizes.world_size // sizes.pipeline_model_parallel_size)
    return 0 if sizes and sizes.pipeline_model_parallel_size == 1 and sizes.world_size else None
