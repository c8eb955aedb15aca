"""Who a torch trace belongs to, and its process groups: from the metadata, or from the events of collectives."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from paceline.formats.collective_names import group_kind
from paceline.formats.kineto_head import Head, ProcessGroup
from paceline.formats.reader import Sink

LARGEST_FULL_GROUP = 256
"""Groups up to this size are written out by every member; of larger ones only the first lists all, to stay linear."""


def read_identity(head: Head, sink: Sink) -> None:
    sink.add("ranks", {"host": head.host})
    add_groups(head.groups, head, sink)


def add_groups(groups: Iterable[ProcessGroup], head: Head, sink: Sink) -> None:
    """groups rows; the id is the name that collectives carry ("Process Group Name")."""
    rows = [row for group in groups if group.pg_name for row in _members(group, head)]
    if rows:
        names, kinds, indices, ranks = map(list, zip(*rows, strict=True))
        sink.add("groups", {"group": names, "kind": kinds, "index": indices, "rank": ranks})


def has_stages(groups: Iterable[ProcessGroup]) -> bool:
    """Whether ranks of a pipeline's stages are among them."""
    return any(_kind(group, world=0) == "pp" and len(group.ranks) > 1 for group in groups)


def groups_in_events(sink: Sink) -> list[ProcessGroup]:
    """Process groups as the arguments of collectives spell them; torch cuts off long lists of ranks ("0, 1, ...")."""
    rows = sink.connection.execute(
        """
        SELECT pg_name, any_value(pg_desc), any_value(pg_ranks) FROM trace
        WHERE pg_name <> '' AND pg_ranks IS NOT NULL
        GROUP BY pg_name
        """
    ).fetchall()
    return [ProcessGroup(name, desc or "", 0, ranks) for name, desc, text in rows if (ranks := _ranks(text))]


def _ranks(text: str) -> list[int]:
    try:
        return msgspec.json.decode(text, type=list[int])
    except msgspec.DecodeError:
        return []


def _members(group: ProcessGroup, head: Head) -> list[tuple[str, str, int, int]]:
    ranks = group.ranks
    if not ranks and 0 < group.pg_size == head.world:
        # torch leaves the list of the group of all ranks empty.
        ranks = list(range(head.world))
    kind = _kind(group, head.world)
    return [
        (group.pg_name, kind, index, rank)
        for index, rank in enumerate(ranks)
        if len(ranks) <= LARGEST_FULL_GROUP or rank == head.rank or ranks[0] == head.rank
    ]


def _kind(group: ProcessGroup, world: int) -> str:
    kind = group_kind(group.pg_desc.lower().removeprefix("mesh_"))
    if kind == "other" and group.pg_desc in ("", "undefined") and world > 1:
        return "world" if world in (len(group.ranks), group.pg_size) else kind
    return kind
