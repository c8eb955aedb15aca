"""Who stands out in the repetitions of one size: ranks and nodes that are slow by habit, runs that are odd."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from paceline.bench.result import OutlierPart, Repetition
from paceline.bench.spread import Outlier, odd_ones, slow_ones


def find_outliers(repetitions: Sequence[Repetition]) -> list[OutlierPart]:
    """Nodes and ranks that are slow in most repetitions, and repetitions unlike the others."""
    found = _habitual("node", [[sum(node) for node in each.cards] for each in repetitions])
    nodes = len(repetitions[0].cards)
    for node in range(nodes):
        cards = [each.cards[node] for each in repetitions]
        found += _habitual("rank", cards, prefix=f"node {node} card " if nodes > 1 else "")
    odd = odd_ones([each.throughput for each in repetitions])
    return found + [_part("run", str(each.place + 1), each, 1) for each in odd]


def _habitual(kind: str, rows: Sequence[Sequence[float]], prefix: str = "") -> list[OutlierPart]:
    """Of those that stand out in more than half of the repetitions, their typical distance."""
    seen: dict[int, list[Outlier]] = {}
    for row in rows:
        for outlier in slow_ones(row):
            seen.setdefault(outlier.place, []).append(outlier)
    often = {place: each for place, each in seen.items() if 2 * len(each) > len(rows)}
    worst = sorted(often.items(), key=lambda item: statistics.median(each.percent for each in item[1]))
    return [_part(kind, f"{prefix}{place}", _typical(each), len(each)) for place, each in worst]


def _typical(outliers: list[Outlier]) -> Outlier:
    return sorted(outliers, key=lambda each: each.percent)[len(outliers) // 2]


def _part(kind: str, name: str, outlier: Outlier, runs: int) -> OutlierPart:
    return msgspec.convert(
        {"kind": kind, "name": name, "value": outlier.value, "peers": outlier.peers, "percent": outlier.percent,
         "runs": runs}, OutlierPart,
    )  # fmt: skip
