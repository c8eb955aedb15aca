"""A diagnosis in words and as the public JSON, in English or Chinese."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from paceline.advice.chinese import DETAILS, METRICS, UNITS, in_chinese
from paceline.advice.finding import SCHEMA, Diagnosis, Evidence, Finding, Subject
from paceline.advice.knowledge import Text, load_entry

_MOST_NAMED = 8


def as_json(diagnosis: Diagnosis, language: str) -> dict[str, Any]:
    """The public JSON, schema "paceline.diagnosis/1"."""
    return {
        "schema": SCHEMA,
        "run": diagnosis.run,
        "replay": {"residual_percent": round(100 * diagnosis.residual, 2)},
        "findings": [_finding(finding, language) for finding in diagnosis.findings],
    }


def title(finding: Finding, language: str) -> str:
    text = _text(finding, language)
    detail = in_chinese(finding.detail, DETAILS) if language == "zh" else finding.detail
    whom = replace(finding.subject, ranks=()) if finding.everybody else finding.subject
    named = _join_hosts(whom, language) if finding.id == "slow-host" else who(whom, language)
    told = text.title_for(who=named, amount=finding.amount, detail=detail)
    # A space divides figures from Chinese words; a full-width bracket needs none.
    return told.replace("） ", "）")


def advice(finding: Finding, language: str) -> tuple[str, ...]:
    return _text(finding, language).advice


def proof(finding: Finding, language: str) -> str:
    """The evidence in one line."""
    peers = "同类" if language == "zh" else "peers"
    return " · ".join(
        f"{entry.metric} {entry.value:g} {entry.unit}".rstrip()
        + (f" ({peers} {entry.peers:g})" if entry.peers is not None else "")
        for entry in evidence(finding, language)
    )


def evidence(finding: Finding, language: str) -> tuple[Evidence, ...]:
    """With metrics and units named in this language."""
    if language != "zh":
        return finding.evidence
    return tuple(
        replace(entry, metric=in_chinese(entry.metric, METRICS), unit=in_chinese(entry.unit, UNITS))
        for entry in finding.evidence
    )


def _text(finding: Finding, language: str) -> Text:
    return (finding.entry or load_entry(finding.id)).text(language)


def _join_hosts(subject: Subject, language: str) -> str:
    return f"{'主机' if language == 'zh' else 'Host'} {_join(subject.hosts)}"


def who(subject: Subject, language: str) -> str:
    """Whom a finding is about, in a few words."""
    zh = language == "zh"
    if len({frozenset((link.src, link.dst)) for link in subject.links}) > 1:
        # One of them is slow; the recording does not say which.
        named = _join(subject.ranks)
        return f"{named} 号卡之间的某条链路" if zh else f"A link among ranks {named}"
    if subject.links:
        link = subject.links[0]
        ends = f"{link.src} {'→' if len(subject.links) == 1 else '↔'} {link.dst}"
        transport = f" ({link.transport})" if link.transport else ""
        return f"链路 {ends}{transport}" if zh else f"Link {ends}{transport}"
    if subject.operators and subject.ranks:
        return _join(subject.operators) + ("，" if zh else " on ") + _ranks(subject, language).lower()
    if subject.operators:
        return _join(subject.operators)
    if subject.stages:
        stage = "Stages" if len(subject.stages) > 1 else "Stage"
        return f"流水线阶段 {_join(subject.stages)}" if zh else f"{stage} {_join(subject.stages)}"
    return _ranks(subject, language)


def _ranks(subject: Subject, language: str) -> str:
    zh = language == "zh"
    if not subject.ranks:
        return "所有卡" if zh else "Every rank"
    named = _join(subject.ranks)
    where = (f"（主机 {subject.hosts[0]}）" if zh else f" (host {subject.hosts[0]})") if len(subject.hosts) == 1 else ""
    if zh:
        return f"{named} 号卡{where}"
    return f"Rank{'s' if len(subject.ranks) > 1 else ''} {named}{where}"


def _join(values: tuple[object, ...]) -> str:
    shown = ", ".join(map(str, values[:_MOST_NAMED]))
    return shown + (f" … ({len(values)})" if len(values) > _MOST_NAMED else "")


def _finding(finding: Finding, language: str) -> dict[str, Any]:
    subject = asdict(finding.subject)
    return {
        "id": finding.id,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "chronic": finding.chronic,
        "subject": {key: list(value) for key, value in subject.items()},
        "gain": {
            "step_ms_now": round(finding.gain.step_ms_now, 3),
            "step_ms_fixed": round(finding.gain.step_ms_fixed, 3),
            "percent": round(finding.gain.percent, 2),
        },
        "title": title(finding, language),
        "evidence": [asdict(entry) for entry in evidence(finding, language)],
        "advice": list(advice(finding, language)),
        "see": f"{'own' if finding.entry else 'kb'}/{finding.id}",
    }
