"""What the history of benchmarks says: every run, and a trend per benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.bench.report.charts import trend
from paceline.bench.report.page import Page, Section, Table, filled, number, percent
from paceline.bench.report.words import word
from paceline.bench.result import Result

_HEADS = ("when", "backend", "ranks", "runs", "throughput", "deviation", "last_change", "accuracy", "efficiency")


def history_page(results: Sequence[Result], language: str) -> Page:
    """One section per benchmark and size, in the order they first ran; newest runs last."""
    series: dict[tuple[str, str, int], list[Result]] = {}
    for result in results:
        series.setdefault((result.name, result.backend, result.largest.ranks), []).append(result)
    sections = tuple(_series(name, ranks, runs, language) for (name, _, ranks), runs in series.items())
    count = f"{len(results)} {word('runs', language)}" if results else word("empty", language)
    return Page(word("history", language), count, sections, language)


def _series(name: str, ranks: int, results: Sequence[Result], language: str) -> Section:
    rows = tuple(_row(result, before) for result, before in zip(results, (None, *results[:-1]), strict=True))
    title = f"{word('trend', language, name=name, n=len(results))} · {results[0].backend} · {ranks} {word('ranks', language)}"
    table = filled(Table(tuple(word(head, language) for head in _HEADS), rows, frozenset({0, 1})))
    return Section(title, (), table, trend(results, title) if len(results) > 1 else "")


def _row(result: Result, before: Result | None) -> tuple[str, ...]:
    size = result.largest
    change = (
        size.throughput.mean / before.largest.throughput.mean - 1 if before and before.largest.throughput.mean else None
    )
    return (
        (result.total_start_time or "–")[:19].replace("T", " "),
        result.backend,
        str(size.ranks),
        str(size.throughput.count),
        number(size.throughput.mean),
        number(size.throughput.deviation),
        "–" if change is None else f"{100 * change:+.1f} %",
        number(result.accuracy),
        percent(size.efficiency),
    )
