"""Score result files as ais-bench documents it: sum over a cluster's ranks, or mean over nodes that trained alone.

cluster        throughput = sum of throughput_0 … throughput_{n-1},           accuracy = accuracy.json
single server  throughput = mean over nodes of (sum of the node's cards),     accuracy = mean of accuracy_{node}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from paceline.bench.result import Mode
from paceline.bench.result_files import ResultSet, local_results, read_cluster, read_single_servers
from paceline.bench.spread import Outlier, slow_values
from paceline.core.message import Message, Sentence, message


class ScoreDocument(msgspec.Struct, frozen=True, kw_only=True, tag="paceline.score/1", tag_field="schema"):
    """The score as JSON: samples per second, by node in the lists."""

    mode: Mode
    throughput_ratio: float
    accuracy: float | None
    throughput_list: tuple[float, ...]
    accuracy_list: tuple[float, ...]
    ranks: int
    nodes: int | None
    """Nodes that trained alone; null for a cluster."""
    cards: tuple[tuple[float, ...], ...]
    """Throughput of every card, by node."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class BenchScore:
    """Throughput in samples per second; lists are by node, a cluster that trained as one has one entry."""

    throughput: float
    accuracy: float | None
    throughput_list: tuple[float, ...]
    accuracy_list: tuple[float, ...]
    single_server: bool
    ranks: int
    cards: tuple[tuple[float, ...], ...]
    """Throughput of every card, by node."""
    said: tuple[Sentence, ...] = ()
    """The warnings in words that `message_in` finds."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.said))

    @property
    def nodes(self) -> int:
        return len(self.cards)

    def lines(self) -> list[str]:
        """As ais-bench prints them: the average is the score."""
        lines = [_line("throughput", self.throughput_list)]
        return lines + ([_line("accuracy", self.accuracy_list)] if self.accuracy_list else [])

    def document(self) -> ScoreDocument:
        return ScoreDocument(
            mode="single_server" if self.single_server else "cluster",
            throughput_ratio=self.throughput,
            accuracy=self.accuracy,
            throughput_list=self.throughput_list,
            accuracy_list=self.accuracy_list,
            ranks=self.ranks,
            nodes=self.nodes if self.single_server else None,
            cards=self.cards,
            warnings=self.warnings,
        )


def score_directory(
    where: str | Path,
    *,
    single_server: bool = False,
    nodes: int | None = None,
    ranks: int | None = None,
    accuracy: bool = True,
) -> BenchScore:
    """Score what a training wrote to a directory, obs://, s3:// or ssh://."""
    with local_results(where) as path:
        if single_server:
            return score(read_single_servers(path, nodes=nodes, accuracy=accuracy, source=str(where)))
        return score(read_cluster(path, ranks=ranks, accuracy=accuracy, source=str(where)))


def with_slow_parts(found: BenchScore) -> BenchScore:
    """With a warning for nodes, and cards of a node, that are slower than their peers in this one run."""
    slow = list(map(_slow_node, slow_values(found.throughput_list))) if found.single_server else []
    for node, cards in enumerate(found.cards):
        slow += [_slow_card(node, each) if found.single_server else _slow_rank(each) for each in slow_values(cards)]
    return replace(found, said=(*found.said, *slow))


def _slow_node(slow: Outlier) -> Message:
    return message("slow_node", n=slow.place, value=slow.value, peers=slow.peers, percent=slow.percent)


def _slow_rank(slow: Outlier) -> Message:
    return message("slow_rank", n=slow.place, value=slow.value, peers=slow.peers, percent=slow.percent)


def _slow_card(node: int, slow: Outlier) -> Message:
    return message("slow_card", node=node, n=slow.place, value=slow.value, peers=slow.peers, percent=slow.percent)


def score(results: ResultSet) -> BenchScore:
    cards = tuple(node.throughputs for node in results.nodes)
    accuracies = tuple(node.accuracy for node in results.nodes if node.accuracy is not None)
    sums = tuple(total(node) for node in cards)
    return BenchScore(
        throughput=mean(sums),
        accuracy=mean(accuracies) if accuracies else None,
        throughput_list=sums,
        accuracy_list=accuracies,
        single_server=results.single_server,
        ranks=sum(len(node) for node in cards),
        cards=cards,
        said=results.warnings,
    )


def mean(values: Sequence[float]) -> float:
    return total(values) / len(values)


def total(values: Sequence[float]) -> float:
    """Added one by one, as ais-bench does: Python's sum() rounds differently from 3.12 on."""
    result = 0.0
    for value in values:
        result += value
    return result


def _line(name: str, values: Sequence[float]) -> str:
    return f"report >> {name}_list:{list(values)} average:{mean(values)}"
