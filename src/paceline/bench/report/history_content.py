"""The report page of the benchmark history: every run, and a trend per benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.bench.history import accepted
from paceline.bench.report.content import efficiency_text
from paceline.bench.result import BenchResult
from paceline.core.i18n import Language, text
from paceline.output.page.charts import ChartPoint, PageChart, trend_chart
from paceline.output.page.page import (
    PageSection,
    PageTable,
    ReportPage,
    format_number,
    without_empty_columns,
)

_HEADS = (
    "when",
    "backend",
    "ranks",
    "runs",
    "throughput",
    "deviation",
    "last_change",
    "accuracy",
    "efficiency",
    "verdict",
    "hosts_column",
    "commit_column",
)


def history_page(results: Sequence[BenchResult], language: Language) -> ReportPage:
    """One section per benchmark and size, in the order they first ran; newest runs last."""
    series: dict[tuple[str, str, int], list[BenchResult]] = {}
    for result in results:
        series.setdefault((result.name, result.backend, result.largest.ranks), []).append(result)
    sections = tuple(_series(name, ranks, runs, language) for (name, _, ranks), runs in series.items())
    count = text("bench.history_count", language, n=len(results)) if results else text("bench.empty", language)
    return ReportPage(text("bench.history", language), count, sections, language)


def _series(name: str, ranks: int, results: Sequence[BenchResult], language: Language) -> PageSection:
    kept = {result.id for result in accepted(results)}
    worse = frozenset(place for place, result in enumerate(results) if result.id not in kept)
    rows = tuple(
        _row(result, before, language, regressed=place in worse)
        for place, (result, before) in enumerate(zip(results, (None, *results[:-1]), strict=True))
    )
    trend = text("bench.trend" if len(results) > 1 else "bench.trend_one", language, name=name, n=len(results))
    title = f"{trend} · {results[0].backend} · {text('bench.size', language, n=ranks)}"
    heads = tuple(text(f"bench.{head}", language) for head in _HEADS)
    table = without_empty_columns(PageTable(heads, rows, frozenset({0, 1, 9, 10, 11})))
    sentences = (text("bench.regressions", language, n=len(worse), all=len(results)),) if worse else ()
    chart = _trend_chart(results, title, worse, language) if len(results) > 1 else None
    return PageSection(title, sentences, table, chart)


def _trend_chart(results: Sequence[BenchResult], title: str, worse: frozenset[int], language: Language) -> PageChart:
    """Throughput of one benchmark's runs in their order; labels are month, day and time (UTC)."""
    points = []
    for result in results:
        when = (result.total_start_time or "")[5:16].replace("T", " ")
        throughput = result.largest.throughput
        points.append(ChartPoint(when, throughput.mean, throughput.deviation))
    axes = (text("bench.when", language), text("bench.axis_throughput", language))
    return trend_chart(points, title, culprits=worse, axes=axes)


def _row(result: BenchResult, before: BenchResult | None, language: Language, *, regressed: bool) -> tuple[str, ...]:
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
        efficiency_text(size, language),
        "–"
        if not (regressed or result.verdict)
        else text("bench.regression", language)
        if regressed
        else str(result.verdict),
        ", ".join(sorted({node.host for node in result.provenance.nodes if node.host})[:3]) or "–",
        (result.provenance.commit or "–")[:9],
    )
