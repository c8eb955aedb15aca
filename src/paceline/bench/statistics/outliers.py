"""Outliers among the repetitions of one size: persistently slow ranks and nodes, and unusual runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from paceline.bench.result import OutlierPart, Repetition
from paceline.bench.spread import SMALLEST_SHARE, Outlier, odd_values, slow_values
from paceline.metrics.outliers import student_tail

_CHANCE = 0.05
"""How often chance may find a slow one among all of a size."""


def find_outliers(repetitions: Sequence[Repetition]) -> list[OutlierPart]:
    """Nodes and ranks that are slow in most repetitions, and repetitions that differ from the others."""
    found = [
        _part("node", str(node), outlier, runs, node=node)
        for node, outlier, runs in _persistent_outliers([[sum(node) for node in each.cards] for each in repetitions])
    ]
    nodes = len(repetitions[0].cards)
    for node in range(nodes):
        for card, outlier, runs in _persistent_outliers([each.cards[node] for each in repetitions]):
            if nodes > 1:
                found.append(_part("rank", f"node {node} card {card}", outlier, runs, node=node, card=card))
            else:
                found.append(_part("rank", str(card), outlier, runs, card=card))
    odd = odd_values([each.throughput for each in repetitions])
    return found + [_part("run", str(each.place + 1), each, 1) for each in odd]


def _persistent_outliers(rows: Sequence[Sequence[float]]) -> list[tuple[int, Outlier, int]]:
    """Places that are slow in more than half of the repetitions, worst first: (place, median outlier, repetitions)."""
    seen: dict[int, list[Outlier]] = {}
    for row in rows:
        for outlier in slow_values(row):
            seen.setdefault(outlier.place, []).append(outlier)
    often = {place: each for place, each in seen.items() if 2 * len(each) > len(rows) and _is_beyond_noise(place, rows)}
    worst = sorted(often.items(), key=lambda item: statistics.median(each.percent for each in item[1]))
    return [(place, _median_outlier(each), len(each)) for place, each in worst]


def _is_beyond_noise(place: int, rows: Sequence[Sequence[float]]) -> bool:
    """Whether this one's mean is lower than chance explains, by how the faster half varies from run to run.

    t = (median of the faster half's means - mean) / (s · √(2 / n)), s their pooled deviation over the n runs. A single run
    has no deviation: there only the distance among the peers counts.
    """
    if len(rows) < 2:
        return True
    columns = list(zip(*rows, strict=True))
    others = sorted((each for number, each in enumerate(columns) if number != place), key=fmean, reverse=True)
    faster = others[: (len(columns) + 1) // 2]
    reference = statistics.median(fmean(each) for each in faster)
    deviation = math.sqrt(fmean(statistics.variance(each) for each in faster))
    sigma = max(deviation, SMALLEST_SHARE * reference)
    if sigma <= 0:
        return True
    t = (reference - fmean(columns[place])) / (sigma * math.sqrt(2 / len(rows)))
    return t > 0 and student_tail(t, len(faster) * (len(rows) - 1)) < _CHANCE / len(columns)


def _median_outlier(outliers: list[Outlier]) -> Outlier:
    return sorted(outliers, key=lambda each: each.percent)[len(outliers) // 2]


def _part(
    kind: Literal["rank", "node", "run"],
    name: str,
    outlier: Outlier,
    runs: int,
    *,
    node: int | None = None,
    card: int | None = None,
) -> OutlierPart:
    return OutlierPart(
        kind=kind,
        name=name,
        value=outlier.value,
        peers=outlier.peers,
        percent=outlier.percent,
        runs=runs,
        node=node,
        card=card,
    )
