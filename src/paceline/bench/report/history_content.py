"""The report page of the benchmark history: every run, and a trend per benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.bench.result import BenchResult
from paceline.core.i18n import Language, text
from paceline.output.page.charts import ChartPoint, trend_chart
from paceline.output.page.page import (
    PageSection,
    PageTable,
    ReportPage,
    format_number,
    format_percent,
    without_empty_columns,
)

_HEADS = ("when", "backend", "ranks", "runs", "throughput", "deviation", "last_change", "accuracy", "efficiency")


def history_page(results: Sequence[BenchResult], language: Language) -> ReportPage:
    """One section per benchmark and size, in the order they first ran; newest runs last."""
    series: dict[tuple[str, str, int], list[BenchResult]] = {}
    for result in results:
        series.setdefault((result.name, result.backend, result.largest.ranks), []).append(result)
    sections = tuple(_series(name, ranks, runs, language) for (name, _, ranks), runs in series.items())
    count = f"{len(results)} {text('bench.runs', language)}" if results else text("bench.empty", language)
    return ReportPage(text("bench.history", language), count, sections, language)


def _series(name: str, ranks: int, results: Sequence[BenchResult], language: Language) -> PageSection:
    rows = tuple(_row(result, before) for result, before in zip(results, (None, *results[:-1]), strict=True))
    trend = text("bench.trend", language, name=name, n=len(results))
    title = f"{trend} · {results[0].backend} · {text('bench.size', language, n=ranks)}"
    heads = tuple(text(f"bench.{head}", language) for head in _HEADS)
    table = without_empty_columns(PageTable(heads, rows, frozenset({0, 1})))
    return PageSection(title, (), table, _trend_chart(results, title) if len(results) > 1 else "")


def _trend_chart(results: Sequence[BenchResult], title: str) -> str:
    """Throughput of one benchmark's runs in their order; labels are month, day and time (UTC)."""
    points = []
    for result in results:
        when = (result.total_start_time or "")[5:16].replace("T", " ")
        throughput = result.largest.throughput
        points.append(ChartPoint(when, throughput.mean, throughput.deviation))
    return trend_chart(points, title)


def _row(result: BenchResult, before: BenchResult | None) -> tuple[str, ...]:
    size = result.largest
    change = (
        size.throughput.mean / before.largest.throughput.mean - 1 if before and before.largest.throughput.mean else None
    )
    return (
        (result.total_start_time or "–")[:19].replace("T", " "),
        result.backend,
        str(size.ranks),
        str(size.throughput.count),
        format_number(size.throughput.mean),
        format_number(size.throughput.deviation),
        "–" if change is None else f"{100 * change:+.1f} %",
        format_number(result.accuracy),
        format_percent(size.efficiency),
    )
