"""parallel_group_info, the communication groups in the metadata of torch_npu and MindSpore, as rows of `groups`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from paceline.core.collective_names import group_hash, group_kind
from paceline.formats.base import Sink

LARGEST_FULL_GROUP = 256
"""Every member writes out groups up to this size; of larger groups only member 0 does, so that rows stay linear."""


class ParallelGroup(msgspec.Struct):
    group_name: str = ""
    group_rank: int | None = None
    global_ranks: list[int] = []


def decode_groups(text: str | bytes) -> dict[str, ParallelGroup]:
    return msgspec.json.decode(text, type=dict[str, ParallelGroup])


def add_groups(groups: Mapping[str, ParallelGroup], sink: Sink) -> None:
    """Add rows of `groups`; the id is hashed, as in the names of collectives."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for identifier, group in groups.items():
        for index, rank in _members(group):
            columns["group"].append(group_hash(identifier))
            columns["kind"].append(group_kind(group.group_name))
            columns["index"].append(index)
            columns["rank"].append(rank)
    if columns:
        sink.add("groups", columns)


def _members(group: ParallelGroup) -> list[tuple[int, int]]:
    if len(group.global_ranks) > LARGEST_FULL_GROUP and group.group_rank:
        return [(group.group_rank, group.global_ranks[group.group_rank])]
    return list(enumerate(group.global_ranks))
