"""Replicas: ranks that work on the same data, and so take longer together where they got more of it."""

from __future__ import annotations

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.rules.communication import gradient_groups

SAME_WORK = 0.5
"""Correlation of the ranks of one replica above which they got more work, and were not disturbed one by one."""
LONGER = 0.04
"""Persistent excess of a replica from which its data is called longer."""


def slow_by_themselves(context: DiagnosisContext) -> list[int]:
    """Rows of persistently slow ranks, less those of whole replicas on several hosts or stages whose ranks vary together."""
    longer = longer_replicas(context)
    return [rank_row for rank_row in context.excess.persistent() if rank_row not in longer]


def longer_replicas(context: DiagnosisContext) -> frozenset[int]:
    """Rows of the ranks of replicas that are slow as a whole: their data is longer, and no card of them is slow."""
    slow = {row for row in context.excess.persistent() if context.excess.per_rank[row] >= LONGER}
    found: set[int] = set()
    if len(slow) < 2:
        return frozenset()
    row_of = {info.rank: row for row, info in enumerate(context.ranks)}
    pairs = [(a, b) for a, b in replica_pairs(context) if a in row_of and b in row_of]
    over = over_peer_mean(context, context.self_time - np.nan_to_num(context.matrix(INPUT_WAIT)))
    for replica in _joined(pairs):
        inside = [(a, b) for a, b in pairs if a in replica and are_apart(context, a, b)]
        if {row_of[rank] for rank in replica} <= slow and replica_correlation(context, over, inside) > SAME_WORK:
            found |= {row_of[rank] for rank in replica}
    return frozenset(found)


def _joined(pairs: list[tuple[int, int]]) -> list[frozenset[int]]:
    """Ranks that pairs join, directly or through others."""
    sets: list[set[int]] = []
    for pair in pairs:
        touched = [each for each in sets if each & set(pair)]
        sets = [each for each in sets if each not in touched] + [set(pair).union(*touched)]
    return [frozenset(each) for each in sets]


def over_peer_mean(context: DiagnosisContext, values: Floats) -> Floats:
    result = np.full(values.shape, np.nan)
    for ranks in context.peer_groups:
        rows = list(ranks)
        if len(rows) > 1:
            known = np.maximum(1, (~np.isnan(values[rows])).sum(axis=0))
            with np.errstate(invalid="ignore", divide="ignore"):
                result[rows] = values[rows] / (np.nansum(values[rows], axis=0) / known)[None, :] - 1
    return result


def are_apart(context: DiagnosisContext, a: int, b: int) -> bool:
    """On hosts or stages that are known to differ."""
    of = {info.rank: info for info in context.ranks}
    if a not in of or b not in of:
        return False
    hosts, stages = {of[a].host, of[b].host}, {of[a].stage, of[b].stage}
    return (len(hosts) > 1 and None not in hosts) or (len(stages) > 1 and -1 not in stages)


def replica_correlation(context: DiagnosisContext, over_mean: Floats, pairs: list[tuple[int, int]]) -> float:
    """Mean correlation over steps between ranks of one replica: those that share more than the sum of gradients."""
    row_of = {info.rank: row for row, info in enumerate(context.ranks)}
    values = []
    for a, b in pairs:
        if a in row_of and b in row_of:
            x, y = over_mean[row_of[a]], over_mean[row_of[b]]
            if not np.isnan(x).any() and not np.isnan(y).any() and np.std(x) > 0 and np.std(y) > 0:
                values.append(float(np.corrcoef(x, y)[0, 1]))
    return float(np.mean(values)) if values else 0.0


def replica_pairs(context: DiagnosisContext) -> list[tuple[int, int]]:
    """Pairs of ranks of one replica: of its tensor or pipeline groups, else of groups that do not sum gradients."""
    pairs = context.rows(
        """
        SELECT DISTINCT a.rank, b.rank, a.kind, "group" FROM groups AS a JOIN groups AS b USING ("group")
        WHERE a.rank < b.rank AND a.kind IN ('tp', 'pp', 'other')
        """
    )
    declared = {(a, b) for a, b, kind, _ in pairs if kind != "other"}
    gradients = set(gradient_groups(context))
    others = {(a, b) for a, b, kind, group in pairs if kind == "other" and str(group) not in gradients}
    return sorted(declared) or _point_to_point_pairs(context) or sorted(others)


def _point_to_point_pairs(context: DiagnosisContext) -> list[tuple[int, int]]:
    """Pairs of ranks that send to each other."""
    events = context.timeline.events
    rows = np.flatnonzero(events.is_message & (events.members[events.instance] == 2))
    sorted_rows = rows[np.lexsort((events.rank[rows], events.instance[rows]))].reshape(-1, 2)
    return [
        (int(events.ranks[a]), int(events.ranks[b])) for a, b in np.unique(events.rank[sorted_rows], axis=0).tolist()
    ]
