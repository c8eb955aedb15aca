"""Host and process groups of a torch trace, from its metadata or from the events of collectives.

torch counts process groups, and all ranks count alike as long as all create every group. Where they do not, one name
means other ranks in other traces: such groups are called after their ranks too ("1:0,8").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from paceline.core.collective_names import group_kind
from paceline.formats.base import Sink
from paceline.formats.kineto.metadata import ProcessGroup, TraceHead
from paceline.formats.parallel_groups import LARGEST_FULL_GROUP


def read_identity(head: TraceHead, sink: Sink) -> None:
    sink.add("ranks", {"host": head.host})
    add_groups(head.groups, head, sink)


def ambiguous_names(heads: Iterable[TraceHead]) -> frozenset[str]:
    """Names of groups that have different ranks in different traces of one job."""
    ranks: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for head in heads:
        for group in head.groups:
            if group.ranks:
                ranks[group.pg_name].add(tuple(group.ranks))
    return frozenset(name for name, seen in ranks.items() if len(seen) > 1)


def group_ids(head: TraceHead) -> Mapping[str, str]:
    """Name in the events of this trace ("Process Group Name") → id of the group, where they differ."""
    return {
        group.pg_name: f"{group.pg_name}:{','.join(map(str, group.ranks))}"
        for group in head.groups
        if group.pg_name in head.ambiguous_groups and group.ranks
    }


def add_groups(groups: Iterable[ProcessGroup], head: TraceHead, sink: Sink) -> None:
    """Add rows of `groups`; the id is the name in the events of collectives, unless it is ambiguous."""
    rows = [row for group in groups if group.pg_name for row in _members(group, head)]
    if rows:
        names, kinds, indices, ranks = map(list, zip(*rows, strict=True))
        sink.add("groups", {"group": names, "kind": kinds, "index": indices, "rank": ranks})


def has_stages(groups: Iterable[ProcessGroup]) -> bool:
    """Whether one of the groups connects pipeline stages."""
    return any(_kind(group, world=0) == "pp" and len(group.ranks) > 1 for group in groups)


def groups_in_events(sink: Sink) -> list[ProcessGroup]:
    """Process groups from the arguments of collectives; torch cuts long lists of ranks ("0, 1, ..."), which are left out."""
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


def _members(group: ProcessGroup, head: TraceHead) -> list[tuple[str, str, int, int]]:
    ranks = group.ranks
    if not ranks and 0 < group.pg_size == head.world:
        # torch leaves the list of ranks empty for the group of all ranks.
        ranks = list(range(head.world))
    kind = _kind(group, head.world)
    name = group_ids(head).get(group.pg_name, group.pg_name)
    return [
        (name, kind, index, rank)
        for index, rank in enumerate(ranks)
        if len(ranks) <= LARGEST_FULL_GROUP or rank == head.rank or ranks[0] == head.rank
    ]


def _kind(group: ProcessGroup, world: int) -> str:
    kind = group_kind(group.pg_desc.lower().removeprefix("mesh_"))
    if kind == "other" and group.pg_desc in ("", "undefined") and world > 1:
        return "world" if world in (len(group.ranks), group.pg_size) else kind
    return kind
