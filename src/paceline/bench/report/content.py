"""The report page of one benchmark result: the score first, then what explains it, then how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from paceline.bench.report.nodes import cards_section, nodes_section
from paceline.bench.result import BaselineComparison, BenchResult, ExpectationPart, Measurement, interval_of
from paceline.bench.statistics.scaling import if_fixed
from paceline.bench.statistics.stragglers import outlier_name, stragglers
from paceline.core.i18n import Language, catalogue, text
from paceline.core.message import message_in
from paceline.output.page.charts import ChartPoint, PageChart, line_chart
from paceline.output.page.page import (
    PageLink,
    PageSection,
    PageTable,
    ReportPage,
    format_number,
    format_percent,
    join_sentences,
    without_empty_columns,
)

_SHOWN_FINDINGS = 3
_LEAST_ACCURACY_LOSS = 0.005
_SIZE_COLUMNS = (
    "ranks",
    "nodes",
    "runs",
    "throughput",
    "deviation",
    "interval",
    "per_rank",
    "efficiency",
    "tokens",
    "mfu",
    "step",
    "accuracy",
    "time_to_quality",
)
_BASELINE_COLUMNS = ("metric", "before", "after", "change", "noise", "verdict")


def result_page(result: BenchResult, language: Language) -> ReportPage:
    sections = (
        _score,
        _expectations,
        _outliers,
        _losses,
        _baseline,
        _diagnosis,
        nodes_section,
        cards_section,
        _energy,
        _times,
        _provenance,
        _warnings,
    )
    shown = tuple(found for section in sections if (found := section(result, language)) is not None)
    return ReportPage(f"{text('bench.benchmark', language)} {result.name}", headline(result, language), shown, language)


def headline(result: BenchResult, language: Language) -> str:
    largest = result.largest
    parts = [*_verdict(result, language), _throughput(result, language)]
    if result.accuracy is not None:
        parts.append(text("bench.accuracy_is", language, accuracy=format_number(result.accuracy)))
    if largest.efficiency is not None:
        parts.append(text("bench.scaling_is", language, percent=efficiency_text(largest, language)))
    if found := stragglers(largest):
        names = "; ".join(each.name(language) for each in found[:_SHOWN_FINDINGS])
        parts.append(text("bench.straggler_is", language, names=names))
    verdicts = {each.verdict for each in result.comparisons}
    if verdicts & {"better", "worse"}:
        verdict = "worse" if "worse" in verdicts else "better"
        parts.append(text("bench.baseline_is", language, verdict=text(f"bench.{verdict}", language)))
    return join_sentences(parts, language)


def efficiency_text(size: Measurement, language: Language) -> str:
    """With its 95 % interval, and no digits that the interval does not support; of single runs two digits.

    The smallest size has none: it is what the others are compared with.
    """
    if size.efficiency is None:
        return "–"
    percent, interval = 100 * size.efficiency, size.efficiency_interval
    if interval is None:
        return text("bench.efficiency_single", language, percent=f"{float(f'{percent:.2g}'):.0f}")
    if not interval and size.efficiency == 1:
        return f"{percent:.0f} %"
    digits = 1 if 100 * interval < 1 else 0
    shown, half = f"{percent:.{digits}f}", f"{100 * interval:.{digits}f}"
    return text("bench.efficiency_interval", language, percent=shown, interval=half)


def _verdict(result: BenchResult, language: Language) -> list[str]:
    if result.verdict is None:
        return []
    if result.verdict == "PASS":
        return [text("bench.verdict_pass", language)]
    failed = [_failed(each, language) for each in result.expectations if not each.passed]
    return [text("bench.verdict_fail", language, what=", ".join(failed) or result.result)]


def _failed(expected: ExpectationPart, language: Language) -> str:
    relation = "<" if expected.relation == ">=" else ">"
    return f"{metric_name(expected.metric, language)} {_metric(expected.value)} {relation} {_metric(expected.limit)}"


def metric_name(name: str, language: Language) -> str:
    """As the result file names it in English."""
    key = f"bench.metric_{name}"
    return text(key, language) if key in catalogue("bench") else name


def _compared_metric(compared: BaselineComparison, language: Language) -> str:
    if not compared.name:
        return compared.metric
    named = metric_name(compared.name, language), text("bench.size", language, n=compared.ranks)
    return text("bench.metric_of_size", language, metric=named[0], size=named[1])


def _metric(value: float | None) -> str:
    """A count of stragglers, or a limit of the plan, has no digits after the point."""
    return f"{value:,.0f}" if value is not None and value.is_integer() else format_number(value)


def _throughput(result: BenchResult, language: Language) -> str:
    """Of all ranks together, or per node where every node trained alone."""
    size = result.largest
    if result.mode == "cluster":
        return text(
            "bench.headline", language, throughput=_plus_minus(size, language), ranks=_size_name(size, language)
        )
    cards = text("bench.size", language, n=size.ranks // max(1, size.nodes))
    return text("bench.headline_alone", language, throughput=_plus_minus(size, language), nodes=size.nodes, cards=cards)


def _score(result: BenchResult, language: Language) -> PageSection:
    method = "bench.score_single_server" if result.mode == "single_server" else "bench.score_cluster"
    rows = tuple(_size_row(each, language) for each in result.measurements)
    table = without_empty_columns(PageTable(_texts(_SIZE_COLUMNS, language), rows, frozenset()))
    sentences = [text(method, language, n=len(result.largest.repetitions))]
    chart = None
    if len(result.measurements) > 1:
        sentences.append(text(f"bench.scaling_{result.largest.scaling}", language))
        sentences += _accuracy_loss(result.measurements, language)
        chart = _scaling_chart(result.measurements, language)
    return PageSection(text("bench.score", language), tuple(sentences), table, chart)


def _accuracy_loss(sizes: Sequence[Measurement], language: Language) -> list[str]:
    """Faster is not better where the training learns less: of the same epochs, more ranks make fewer updates."""
    first, last = sizes[0], sizes[-1]
    if first.accuracy is None or last.accuracy is None:
        return []
    noise = max(interval_of(each.accuracy) or 0.0 for each in (first, last) if each.accuracy)
    if first.accuracy.mean - last.accuracy.mean <= max(noise, _LEAST_ACCURACY_LOSS):
        return []
    before, after = (format_number(each.accuracy.mean) for each in (first, last) if each.accuracy)
    return [text("bench.accuracy_loss", language, before=before, after=after, ranks=last.ranks)]


def _expectations(result: BenchResult, language: Language) -> PageSection | None:
    if not result.expectations:
        return None
    rows = []
    for each in result.expectations:
        verdict = text("bench.yes" if each.passed else "bench.no", language)
        shown = verdict if each.sure else text("bench.unsure", language, verdict=verdict)
        rows.append(
            (metric_name(each.metric, language), f"{each.relation} {_metric(each.limit)}", _metric(each.value), shown)
        )
    heads = _texts(("metric", "limit", "measured_value", "passed"), language)
    return PageSection(text("bench.expectations", language), (), PageTable(heads, tuple(rows), frozenset({0, 3})))


def _scaling_chart(sizes: Sequence[Measurement], language: Language) -> PageChart:
    return line_chart(
        [
            ChartPoint(str(size.ranks), size.throughput.mean, interval_of(size.throughput), count=size.ranks)
            for size in sizes
        ],
        title=text("bench.scaling_chart", language),
        line=text("bench.measured", language),
        ideal=text("bench.ideal", language),
        axes=(text("bench.axis_ranks", language), text("bench.axis_throughput", language)),
    )


def _size_row(size: Measurement, language: Language) -> tuple[str, ...]:
    step = size.profile.step_ms if size.profile else None
    return (
        str(size.ranks),
        str(size.nodes),
        str(size.throughput.count),
        format_number(size.throughput.mean),
        format_number(size.throughput.deviation),
        format_number(interval_of(size.throughput)),
        format_number(size.per_rank),
        efficiency_text(size, language),
        format_number(size.tokens_per_second_per_card),
        format_percent(size.mfu),
        format_number(step),
        format_number(size.accuracy.mean if size.accuracy else None),
        format_number(size.time_to_quality),
    )


def _outliers(result: BenchResult, language: Language) -> PageSection | None:
    """None where there was nothing to compare."""
    compared = any(size.ranks > 1 or size.throughput.count > 2 for size in result.measurements)
    if not compared:
        return None
    sentences = [
        (_size(size, language) if len(result.measurements) > 1 else "")
        + text(
            f"bench.outlier_{each.kind}",
            language,
            name=outlier_name(each, language),
            value=format_number(each.value),
            peers=format_number(each.peers),
            percent=each.percent,
            runs=each.runs,
        )
        for size in result.measurements
        for each in size.outliers
    ]
    sentences += [
        text("bench.outlier_profile", language, name=each.name(language))
        for size in result.measurements
        for each in stragglers(size)
        if each.finding is not None
    ]
    return PageSection(text("bench.outliers", language), tuple(sentences) or (text("bench.no_outlier", language),))


def _losses(result: BenchResult, language: Language) -> PageSection | None:
    sentences = [line for loss in result.losses for line in (loss.sentences_zh if language == "zh" else loss.sentences)]
    return PageSection(text("bench.loss", language), tuple(sentences)) if sentences else None


def _baseline(result: BenchResult, language: Language) -> PageSection | None:
    if not result.comparisons:
        return None
    rows = tuple(
        (
            _compared_metric(each, language),
            format_number(each.before),
            format_number(each.after),
            f"{each.percent:+.1f} %",
            f"± {format_number(each.noise)}",
            text(f"bench.{each.verdict}", language),
        )
        for each in result.comparisons
    )
    return PageSection(
        text("bench.baseline", language),
        (result.comparisons[0].baseline,),
        PageTable(_texts(_BASELINE_COLUMNS, language), rows, frozenset({0, 5})),
    )


def _diagnosis(result: BenchResult, language: Language) -> PageSection | None:
    sentences = [line for size in result.measurements for line in _findings(size, language)]
    return (
        PageSection(text("bench.diagnosis", language), tuple(sentences), links=_reports(result, language))
        if sentences
        else None
    )


def _reports(result: BenchResult, language: Language) -> tuple[PageLink, ...]:
    return tuple(
        PageLink(_size(size, language) + text("bench.profile_report", language), size.profile.report)
        for size in result.measurements
        if size.profile is not None and size.profile.report
    )


def _findings(size: Measurement, language: Language) -> Iterator[str]:
    if size.profile is None or size.profile.diagnosis is None:
        return
    findings = size.profile.diagnosis.findings
    prefix = _size(size, language)
    if not findings:
        yield prefix + text("bench.healthy", language)
    for place, finding in enumerate(findings[:_SHOWN_FINDINGS]):
        zh = size.profile.titles_zh
        title = zh[place] if language == "zh" and place < len(zh) else finding.title
        yield prefix + if_fixed(title, finding.gain, language)
    yield prefix + text("bench.profile_at", language, path=size.profile.source)


def _energy(result: BenchResult, language: Language) -> PageSection:
    known = [
        ("average_power", format_number(result.average_power)),
        ("max_power", format_number(result.max_power)),
        ("energy_consumption", format_number(result.energy_consumption)),
        ("efficientcy", format_number(result.efficientcy)),
        ("resource_util_ratio", format_percent(result.resource_util_ratio)),
    ]
    if all(value == "–" for _, value in known):
        return PageSection(text("bench.energy", language), (text("bench.no_energy", language),))
    rows = tuple((text(f"bench.{name}", language), value) for name, value in known)
    return PageSection(
        text("bench.energy", language),
        (),
        PageTable((text("bench.what", language), text("bench.value", language)), rows),
    )


def _times(result: BenchResult, language: Language) -> PageSection:
    rows = []
    for name in ("prepare", "dataload", "proc", "total"):
        start, end = getattr(result, f"{name}_start_time"), getattr(result, f"{name}_end_time")
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() if start and end else None
        rows.append((text(f"bench.{name}", language), start or "–", end or "–", format_number(took)))
    heads = _texts(("what", "from", "to", "seconds"), language)
    table = PageTable(heads, tuple(rows), frozenset({0, 1, 2}))
    return PageSection(text("bench.times", language), (), table, detail=True)


def _provenance(result: BenchResult, language: Language) -> PageSection:
    made = result.provenance
    versions = {"paceline": made.paceline, "python": made.python, **made.frameworks}
    rows = [
        ("backend", result.backend),
        ("image", made.image or "–"),
        ("flavor", ", ".join(each for each in (made.flavor, made.pool) if each) or "–"),
        ("environment", " ".join(f"{k}={v}" for k, v in made.nodes[0].environment.items()) if made.nodes else "–"),
        ("client", f"{made.host}, {made.platform}"),
        ("cores", str(made.cores or "–")),
        ("cards_used", made.cards or "–"),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
        ("commit", made.commit or "–"),
        ("config", f"{made.config} (sha256 {made.config_sha256[:12]})"),
        ("command", " ".join(made.command)),
    ]
    named = tuple((text(f"bench.{name}", language), value) for name, value in rows if value not in ("–", ""))
    table = PageTable(_texts(("what", "value"), language), named, frozenset({0, 1}))
    return PageSection(text("bench.provenance", language), (), table, detail=True)


def _warnings(result: BenchResult, language: Language) -> PageSection | None:
    said = result.warnings_said or result.warnings
    shown = tuple(message_in(language, each) for each in said)
    return PageSection(text("bench.warnings", language), shown) if shown else None


def _size(size: Measurement, language: Language) -> str:
    return text("bench.size", language, n=size.ranks) + ("：" if language == "zh" else ": ")


def _texts(names: Sequence[str], language: Language) -> tuple[str, ...]:
    return tuple(text(f"bench.{name}", language) for name in names)


def _size_name(size: Measurement, language: Language) -> str:
    return text("bench.size", language, n=size.ranks)


def _plus_minus(size: Measurement, language: Language) -> str:
    """The mean with its 95 % interval; a single run is marked as one."""
    found, mean = size.throughput, format_number(size.throughput.mean)
    interval = interval_of(found)
    if interval is None:
        return text("bench.single_run", language, mean=mean)
    decimals = len(mean.partition(".")[2])
    return text("bench.with_interval", language, mean=mean, interval=f"{interval:,.{decimals}f}", n=found.count)
