"""Peer groups of a running job: which ranks are compared with each other.

The definition is that of metrics/peers.py: ranks of the same pipeline stage that run the same program. The stage comes
from the pipeline groups the ranks have recorded. Where a job sends and receives without declaring such groups, diagnose
infers stages from the timeline; a live log has none, so ranks are compared within their data-parallel group then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.metrics.peers import PeerGroups, peer_groups
from paceline.watch.ranks import LiveRank

_UNKNOWN = -1


def live_peer_groups(ranks: Sequence[LiveRank]) -> PeerGroups:
    """Rows (indices of `ranks`) that are peers of each other."""
    programs = [rank.program for rank in ranks]
    if None in programs:  # some logs have just begun
        programs = [None] * len(ranks)
    return peer_groups(_stages(ranks), programs)


def _stages(ranks: Sequence[LiveRank]) -> list[int]:
    declared = pipeline_stages({group for rank in ranks for group in rank.groups_of_kind("pp")})
    if declared:
        return [declared.get(rank.rank, _UNKNOWN) for rank in ranks]
    if any(rank.has_point_to_point for rank in ranks):
        return [min((min(group) for group in rank.groups_of_kind("dp")), default=_UNKNOWN) for rank in ranks]
    return [_UNKNOWN] * len(ranks)


def pipeline_stages(groups: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """Stage of each rank, as run/tables/views.py derives it: a pipeline group holds all stages, or one pair of neighbours.

    >>> pipeline_stages([(0, 4, 8)]), pipeline_stages([(0, 4), (4, 8)])
    ({0: 0, 4: 1, 8: 2}, {0: 0, 4: 1, 8: 2})
    """
    previous: dict[int, set[int]] = {}
    for group in (group for group in groups if len(group) > 1):
        for before, rank in zip((None, *group), group, strict=False):
            previous.setdefault(rank, set()).update(() if before is None else (before,))
    stages: dict[int, int] = {}
    while ready := [rank for rank in previous if rank not in stages and previous[rank] <= stages.keys()]:
        stages |= {rank: max((stages[before] + 1 for before in previous[rank]), default=0) for rank in ready}
    return dict(sorted(stages.items()))
