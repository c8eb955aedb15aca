"""The parts of a report that show hardware: every node as it reported itself, every card with its throughput."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from paceline.bench.result import BenchResult, Measurement
from paceline.core.i18n import Language, text
from paceline.output.page.charts import ChartPoint, PageChart, bar_chart
from paceline.output.page.page import PageSection, PageTable, format_number, format_percent, without_empty_columns

_MOST_CARDS = 64
_NODE_COLUMNS = (
    "nodes",
    "node_host",
    "node_cards",
    "node_links",
    "node_driver",
    "node_toolkit",
    "node_frameworks",
    "node_cores",
    "node_use",
    "node_throughput",
)


def nodes_section(result: BenchResult, language: Language) -> PageSection | None:
    """Every node as it reported itself, with what it achieved."""
    known = result.provenance.nodes
    if not any(node.host for node in known):
        return None
    achieved = _node_means(result.largest, len(known))
    used = _node_use(result.largest)
    rows = tuple(
        (
            str(number),
            node.host or "–",
            f"{node.cards} × {node.card}" if node.cards else "–",
            ", ".join(f"{kind} × {pairs}" for kind, pairs in node.topology.items()) or "–",
            ", ".join(each for each in (node.driver, node.firmware) if each) or "–",
            node.toolkit or "–",
            ", ".join(f"{name} {version}" for name, version in node.frameworks.items()) or "–",
            str(node.cores or "–"),
            format_percent(used.get(number)),
            format_number(achieved[number].value if achieved else None),
        )
        for number, node in enumerate(known)
    )
    heads = tuple(text(f"bench.{name}", language) for name in _NODE_COLUMNS)
    table = without_empty_columns(PageTable(heads, rows, frozenset(range(7))))
    chart = _node_chart(result, achieved, language) if len(achieved) > 1 else None
    return PageSection(text("bench.nodes_section", language), (), table, chart, detail=len(known) < 2)


def _node_means(size: Measurement, nodes: int) -> list[ChartPoint]:
    """Sum over the cards of each node, mean and deviation over the repetitions; empty where nodes are not told apart."""
    runs = [each for each in size.repetitions if len(each.cards) == nodes]
    sums = [[sum(each.cards[number]) for each in runs] for number in range(nodes if runs else 0)]
    return [
        ChartPoint(str(number), fmean(values), stdev(values) if len(values) > 1 else None)
        for number, values in enumerate(sums)
    ]


def _node_use(size: Measurement) -> dict[int, float]:
    """Node → mean use of its cards, as the backend's service measured it."""
    found: dict[int, list[float]] = {}
    for run in size.repetitions:
        for each in run.utilisation:
            number = each.name.rpartition("-")[2]
            if each.cards is not None and number.isdecimal():
                found.setdefault(int(number), []).append(each.cards)
    return {number: fmean(shares) for number, shares in found.items()}


def _node_chart(result: BenchResult, points: Sequence[ChartPoint], language: Language) -> PageChart:
    slow = {str(each.node) for each in result.largest.outliers if each.kind == "node"}
    axes = (text("bench.node_axis", language), text("bench.axis_throughput", language))
    return bar_chart(points, slow, text("bench.nodes_chart", language), axes)


def cards_section(result: BenchResult, language: Language) -> PageSection | None:
    """All of them where they are few, else the slowest."""
    size = result.largest
    means = _card_means(size)
    if len(means) < 2:
        return None
    caption = text("bench.cards_chart", language)
    if len(means) > _MOST_CARDS:
        caption = text("bench.cards_slowest", language, n=_MOST_CARDS, all=len(means))
        means = sorted(means, key=lambda card: card[1])[:_MOST_CARDS]
    slow = {_card_name(each.node, each.card) for each in size.outliers if each.kind == "rank"}
    rows = tuple((name, format_number(value), format_number(spread)) for name, value, spread in means)
    heads = ("card", "throughput", "deviation")
    table = without_empty_columns(PageTable(tuple(text(f"bench.{head}", language) for head in heads), rows))
    axes = (text("bench.card", language), text("bench.axis_throughput", language))
    chart = bar_chart([ChartPoint(name, value, spread) for name, value, spread in means], slow, caption, axes)
    return PageSection(text("bench.cards", language), (caption,), table, chart, detail=True)


def _card_means(size: Measurement) -> list[tuple[str, float, float | None]]:
    """Name (node/card, or rank) and throughput: mean and deviation over the repetitions."""
    nodes = size.repetitions[0].cards
    found = []
    for n, cards in enumerate(nodes):
        for c in range(len(cards)):
            values = [each.cards[n][c] for each in size.repetitions]
            name = _card_name(n if len(nodes) > 1 else None, c)
            found.append((name, fmean(values), stdev(values) if len(values) > 1 else None))
    return found


def _card_name(node: int | None, card: int | None) -> str:
    return str(card) if node is None else f"{node}/{card}"
