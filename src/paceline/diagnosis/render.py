"""An examination in words: the public diagnosis in English or Chinese."""

from __future__ import annotations

import math

import msgspec

from paceline.core.i18n import Language, catalogue, text
from paceline.core.message import Message, Sentence, message_in
from paceline.core.text_encoding import printable
from paceline.diagnosis.finding import Diagnosis, Evidence, Finding, Gain, ReplayCheck, Subject
from paceline.diagnosis.knowledge import EntryText, load_entry
from paceline.diagnosis.platform import reach
from paceline.diagnosis.rule_finding import Examination, MeasuredValue, PredictedGain, Quantity, RuleFinding

_MOST_NAMED = 8
_MOST_STEPS = 6
_NAME_STEPS = ("one-off-stall", "periodic-stall")
"""Findings whose title names the steps."""


def in_words(examination: Examination, language: Language) -> Diagnosis:
    """The public diagnosis in a language."""
    warnings, withheld = _said(examination.warnings, language), _said(examination.withheld, language)
    return Diagnosis(
        run=msgspec.structs.replace(examination.run, warnings=warnings, withheld=withheld),
        replay=_replay_check(examination),
        study=examination.study,
        findings=tuple(finding_in_words(finding, language, examination.platform) for finding in examination.findings),
    )


def _replay_check(examination: Examination) -> ReplayCheck:
    residual = round(100 * examination.residual, 2) + 0.0  # + 0.0: no minus before zero
    prediction = examination.prediction
    if prediction is None:
        return ReplayCheck(residual, level=examination.level)
    typical, worst = round(100 * prediction.typical, 2), round(100 * prediction.worst, 2)
    return ReplayCheck(residual, typical, worst, examination.level)


def finding_in_words(finding: RuleFinding, language: Language, platform: frozenset[str] = frozenset()) -> Finding:
    """`platform` decides which advice fits: platform.py."""
    return Finding(
        id=finding.id,
        severity=finding.severity,
        confidence=finding.confidence,
        chronic=finding.chronic,
        when=finding.when,
        subject=finding.subject,
        gain=_gain(finding.gain),
        title=title(finding, language),
        evidence=tuple(_evidence(measurement, language) for measurement in finding.evidence),
        advice=_text(finding, language).advice_for(platform | reach(finding.subject.links)),
        doubts=_said(finding.doubts, language),
        see=f"{'own' if finding.entry else 'kb'}/{finding.id}",
    )


def title(finding: RuleFinding, language: Language) -> str:
    """The title of the knowledge base entry, filled with what this finding is about."""
    subject = msgspec.structs.replace(finding.subject, ranks=()) if finding.covers_all_ranks else finding.subject
    filled = _text(finding, language).title_for(
        who=_subject_name(finding, subject, language),
        amount=_shown(finding.amount, language),
        detail=_shown(finding.detail, language),
        steps=_step_names(subject, language),
    )
    # A space divides figures from Chinese words; a full-width bracket needs none.
    return filled.replace("） ", "）") + _when(finding, language)


def _when(finding: RuleFinding, language: Language) -> str:
    """The time pattern as the end of a title; nothing where it is always so, or where the title names the steps."""
    when = finding.when
    if when is None or when.pattern == "always" or finding.id in _NAME_STEPS:
        return ""
    first, last = when.steps[0], when.steps[-1]
    shown = {"step": last if when.pattern == "until" else first, "every": when.every}
    return text(f"diagnosis.when.{when.pattern}", language, **shown, slow=len(when.steps), all=when.of)


def _subject_name(finding: RuleFinding, subject: Subject, language: Language) -> str:
    if finding.area and (subject.hosts or finding.area == "fabric"):
        transport = _join(subject.operators)
        return text(f"diagnosis.who.{finding.area}", language, hosts=_join(subject.hosts), transport=transport)
    if finding.id == "slow-nic":
        return _card_owner(finding.subject, language)
    return _host_names(subject, language) if finding.id == "slow-host" else who(subject, language)


def _card_owner(subject: Subject, language: Language) -> str:
    """Whose network card it is: a rank's, a host's, or that of one of several hosts."""
    if len(subject.ranks) == 1:
        return _rank_names(subject, language)
    if len(subject.hosts) > 1:
        return text("diagnosis.who.one_of_hosts", language, hosts=_join(subject.hosts))
    return _host_names(subject, language) if subject.hosts else _rank_names(subject, language)


def who(subject: Subject, language: Language) -> str:
    """Whom a finding is about, in a few words."""
    if len({frozenset((link.src, link.dst)) for link in subject.links}) > 1:
        # One of them is slow; the recording does not say which.
        return text("diagnosis.who.one_of_links", language, ranks=_join(subject.ranks))
    if subject.links:
        link = subject.links[0]
        ends = f"{link.src} {'→' if len(subject.links) == 1 else '↔'} {link.dst}"
        key = "link_over" if link.transport else "link"
        return text(f"diagnosis.who.{key}", language, ends=ends, transport=link.transport)
    if subject.operators and subject.ranks:
        ranks = _rank_names(subject, language)
        inside = ranks[0].lower() + ranks[1:]
        return text("diagnosis.who.operators_on", language, operators=_join(subject.operators), who=inside)
    if subject.operators:
        return _join(subject.operators)
    if subject.stages:
        key = "stages" if len(subject.stages) > 1 else "stage"
        return text(f"diagnosis.who.{key}", language, stages=_join(subject.stages))
    return _rank_names(subject, language)


def _text(finding: RuleFinding, language: Language) -> EntryText:
    return (finding.entry or load_entry(finding.id)).text(language)


def _gain(gain: PredictedGain) -> Gain:
    return Gain(round(gain.step_ms_now, 3), round(gain.step_ms_fixed, 3), round(gain.percent, 2), gain.speedup)


def _evidence(measurement: MeasuredValue, language: Language) -> Evidence:
    key, texts = measurement.key, catalogue("diagnosis")
    name = measurement.name or text(f"diagnosis.evidence.{key}", language, **measurement.values)
    unit = f"diagnosis.unit.{measurement.unit}"
    if measurement.value == 1 and f"{unit}.one" in texts:
        unit += ".one"
    return Evidence(
        metric=name,
        value=measurement.value,
        peers=measurement.peers,
        unit=text(unit, language) if unit in texts else measurement.unit,
        key=key,
        change=_change(measurement),
    )


def _change(measurement: MeasuredValue) -> float | None:
    """So many of so many ranks is no comparison with peers, nor is one share with another."""
    value, peers = measurement.value, measurement.peers
    if not peers or not math.isfinite(value) or measurement.unit == "%" or measurement.key == "ranks_with_missing_data":
        return None
    return round(value / peers - 1, 4)


def _rank_names(subject: Subject, language: Language) -> str:
    if not subject.ranks:
        return text("diagnosis.who.all_ranks", language)
    key = "ranks" if len(subject.ranks) > 1 else "rank"
    if len(subject.hosts) == 1:
        return text(f"diagnosis.who.{key}_of_host", language, ranks=_join(subject.ranks), host=subject.hosts[0])
    return text(f"diagnosis.who.{key}", language, ranks=_join(subject.ranks))


def _host_names(subject: Subject, language: Language) -> str:
    key = "hosts" if len(subject.hosts) > 1 else "host"
    return text(f"diagnosis.who.{key}", language, hosts=_join(subject.hosts))


def _step_names(subject: Subject, language: Language) -> str:
    steps = subject.steps
    listed = ", ".join(map(str, steps[:_MOST_STEPS])) + (" …" if len(steps) > _MOST_STEPS else "")
    return text("diagnosis.steps" if len(steps) > 1 else "diagnosis.step", language, steps=listed)


def _shown(value: Quantity | Sentence | None, language: Language) -> str:
    if isinstance(value, Message):
        return message_in(language, value)
    return "" if value is None else str(value)


def _said(sentences: tuple[Sentence, ...], language: Language) -> tuple[str, ...]:
    """Names of files in them may hold bytes that are no text."""
    return tuple(printable(message_in(language, each)) for each in sentences)


def _join(values: tuple[object, ...]) -> str:
    shown = ", ".join(map(str, values[:_MOST_NAMED]))
    return shown + (f" … ({len(values)})" if len(values) > _MOST_NAMED else "")
