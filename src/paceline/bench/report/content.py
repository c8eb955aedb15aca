"""What a report of one benchmark says: the answer first, then its proof, then how it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from statistics import fmean

from paceline.bench.report.charts import bars, scaling_chart
from paceline.bench.report.page import Page, Section, Table, filled, joined, number, percent
from paceline.bench.report.words import word
from paceline.bench.result import Measurement, Result

_MOST_CARDS = 64
_SHOWN_FINDINGS = 3


def page_of(result: Result, language: str) -> Page:
    sections = (
        _score, _outliers, _losses, _baseline, _diagnosis, _cards, _energy, _times, _provenance, _warnings,
    )  # fmt: skip
    shown = tuple(found for section in sections if (found := section(result, language)) is not None)
    return Page(f"{word('benchmark', language)} {result.name}", headline(result, language), shown, language)


def headline(result: Result, language: str) -> str:
    largest = result.largest
    said = [word("headline", language, throughput=_plus_minus(largest), ranks=largest.ranks)]
    if result.accuracy is not None:
        said.append(word("accuracy_is", language, accuracy=number(result.accuracy)))
    if largest.efficiency is not None:
        said.append(word("scaling_is", language, percent=percent(largest.efficiency)))
    verdicts = {each.verdict for each in result.comparisons}
    if verdicts & {"better", "worse"}:
        found = "worse" if "worse" in verdicts else "better"
        said.append(word("baseline_is", language, verdict=word(found, language)))
    return joined(said, language)


def _score(result: Result, language: str) -> Section:
    says = "score_says_single" if result.mode == "single_server" else "score_says"
    heads = ["ranks", "nodes", "runs", "throughput", "deviation", "per_rank", "efficiency", "step", "accuracy"]
    rows = tuple(_size_row(each) for each in result.measurements)
    table = filled(Table(tuple(word(head, language) for head in heads), rows, frozenset()))
    sentence = word(says, language, n=len(result.largest.repetitions))
    chart = scaling_chart(result.measurements, language) if len(result.measurements) > 1 else ""
    return Section(word("score", language), (sentence,), table, chart)


def _size_row(size: Measurement) -> tuple[str, ...]:
    step = size.profile.step_ms if size.profile else None
    return (
        str(size.ranks),
        str(size.nodes),
        str(size.throughput.count),
        number(size.throughput.mean),
        number(size.throughput.deviation),
        number(size.per_rank),
        percent(size.efficiency),
        number(step),
        number(size.accuracy.mean if size.accuracy else None),
    )


def _outliers(result: Result, language: str) -> Section | None:
    """Nothing is said where there was nothing to compare."""
    compared = any(size.ranks > 1 or size.throughput.count > 2 for size in result.measurements)
    if not compared:
        return None
    said = [
        (_size(size, language) if len(result.measurements) > 1 else "")
        + word(f"outlier_{each.kind}", language, name=each.name, value=number(each.value), peers=number(each.peers),
               percent=each.percent, runs=each.runs)
        for size in result.measurements for each in size.outliers
    ]  # fmt: skip
    return Section(word("outliers", language), tuple(said) or (word("nobody", language),))


def _losses(result: Result, language: str) -> Section | None:
    said = [line for loss in result.losses for line in (loss.sentences_zh if language == "zh" else loss.sentences)]
    return Section(word("loss", language), tuple(said)) if said else None


def _baseline(result: Result, language: str) -> Section | None:
    if not result.comparisons:
        return None
    heads = ("metric", "before", "after", "change", "noise", "verdict")
    rows = tuple(
        (each.metric, number(each.before), number(each.after), f"{each.percent:+.1f} %", f"± {number(each.noise)}",
         word(each.verdict, language)) for each in result.comparisons
    )  # fmt: skip
    return Section(
        word("baseline", language),
        (result.comparisons[0].baseline,),
        Table(tuple(word(head, language) for head in heads), rows, frozenset({0, 5})),
    )


def _diagnosis(result: Result, language: str) -> Section | None:
    said = [line for size in result.measurements for line in _findings(size, language)]
    return Section(word("diagnosis", language), tuple(said)) if said else None


def _findings(size: Measurement, language: str) -> Iterator[str]:
    if size.profile is None or size.profile.diagnosis is None:
        return
    findings = size.profile.diagnosis.get("findings", [])
    prefix = _size(size, language)
    if not findings:
        yield prefix + word("healthy", language)
    for place, finding in enumerate(findings[:_SHOWN_FINDINGS]):
        zh = size.profile.titles_zh
        title = zh[place] if language == "zh" and place < len(zh) else finding["title"]
        yield prefix + word("mended", language, title=title, percent=finding["gain"]["percent"])


def _cards(result: Result, language: str) -> Section | None:
    """All of them where they are few, else the slowest."""
    size = result.largest
    means = _card_means(size)
    if len(means) < 2:
        return None
    said = word("cards_chart", language)
    if len(means) > _MOST_CARDS:
        said = word("cards_slowest", language, n=_MOST_CARDS, all=len(means))
        means = sorted(means, key=lambda card: card[1])[:_MOST_CARDS]
    slow = {each.name.replace("node ", "").replace(" card ", "/") for each in size.outliers if each.kind == "rank"}
    rows = tuple((name, number(value)) for name, value in means)
    table = Table((word("card", language), word("throughput", language)), rows)
    chart = bars([name for name, _ in means], [value for _, value in means], slow, said)
    return Section(word("cards", language), (said,), table, chart)


def _card_means(size: Measurement) -> list[tuple[str, float]]:
    """Name (node/card, or rank) and throughput, mean over the repetitions."""
    nodes = size.repetitions[0].cards
    return [
        (f"{n}/{c}" if len(nodes) > 1 else str(c), fmean(each.cards[n][c] for each in size.repetitions))
        for n, cards in enumerate(nodes) for c in range(len(cards))
    ]  # fmt: skip


def _energy(result: Result, language: str) -> Section:
    known = [
        ("average_power", number(result.average_power)),
        ("max_power", number(result.max_power)),
        ("energy_consumption", number(result.energy_consumption)),
        ("efficientcy", number(result.efficientcy)),
        ("resource_util_ratio", percent(result.resource_util_ratio)),
    ]
    if all(value == "–" for _, value in known):
        return Section(word("energy", language), (word("no_energy", language),))
    rows = tuple((word(name, language), value) for name, value in known)
    return Section(word("energy", language), (), Table((word("what", language), word("value", language)), rows))


def _times(result: Result, language: str) -> Section:
    rows = []
    for name in ("prepare", "dataload", "proc", "total"):
        start, end = getattr(result, f"{name}_start_time"), getattr(result, f"{name}_end_time")
        took = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() if start and end else None
        rows.append((word(name, language), start or "–", end or "–", number(took)))
    heads = tuple(word(head, language) for head in ("what", "from", "to", "seconds"))
    return Section(word("times", language), (), Table(heads, tuple(rows), frozenset({0, 1, 2})))


def _provenance(result: Result, language: str) -> Section:
    made = result.provenance
    versions = {"paceline": made.paceline, "python": made.python, **made.frameworks}
    rows = [
        ("backend", result.backend),
        ("host", f"{made.host}, {made.platform}"),
        ("cores", str(made.cores or "–")),
        ("cards", made.cards or "–"),
        ("versions", ", ".join(f"{name} {text}" for name, text in versions.items())),
        ("commit", made.commit or "–"),
        ("config", f"{made.config} (sha256 {made.config_sha256[:12]})"),
        ("command", " ".join(made.command)),
    ]
    heads = (word("what", language), word("value", language))
    table = Table(heads, tuple((word(name, language), text) for name, text in rows), frozenset({0, 1}))
    return Section(word("provenance", language), (), table)


def _warnings(result: Result, language: str) -> Section | None:
    return Section(word("warnings", language), result.warnings) if result.warnings else None


def _size(size: Measurement, language: str) -> str:
    return word("size", language, n=size.ranks) + ("：" if language == "zh" else ": ")


def _plus_minus(size: Measurement) -> str:
    deviation = size.throughput.deviation
    return number(size.throughput.mean) + (f" ± {number(deviation)}" if deviation is not None else "")
