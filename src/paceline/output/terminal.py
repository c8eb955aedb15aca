"""A diagnosis on one screen: each finding with gain, evidence and first advice; then how a step divides."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.cells import cell_len
from rich.markup import escape

from paceline.core.i18n import Language, text
from paceline.diagnosis.finding import (
    NOTABLE_PERCENT,
    Diagnosis,
    Evidence,
    Finding,
    Gain,
    LossPart,
    ReplayCheck,
    RunFacts,
    StudyNumbers,
)
from paceline.metrics.steps import KNOWN
from paceline.output.console import Console

_COLOURS = {
    "compute": "blue",
    "overlapped": "cyan",
    "exposed": "dark_orange",
    "waiting": "bright_black",
    "tail": "blue",
    "free": "white",
    "data": "magenta",
    "unknown": "bright_black",
}
_LOSS_COLOURS = {
    "communication": "dark_orange",
    "exposed": "dark_orange",
    "bubble": "bright_black",
    "input": "magenta",
    "host": "white",
}
_MASKED_SHARE = 0.1
"""Fixing a fault alone saves so much more or less than its share, where others hide it."""
_MOST_WARNINGS = 5
_MOST_WORKERS = 4
_MIN_GAIN_PERCENT = 0.1
_LABEL_CELLS = 10
_BAR_CELLS = 40
"""Width of a whole step."""


def print_diagnosis(
    diagnosis: Diagnosis, language: Language, top: int, *, shares: Mapping[str, float] | None = None
) -> None:
    """`shares` is the part of a step that each kind of time takes, see metrics/steps.py."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)
    console.print(f"\n  {_head(diagnosis.run, language)}   [dim]{prediction_error(diagnosis.replay, language)}[/]\n")
    if not diagnosis.findings:
        console.print(f"  {_nothing_found(diagnosis.run, shares or {}, language)}\n")
    shown = diagnosis.findings[: top or None]
    for number, finding in enumerate(shown, 1):
        _print_finding(console, number, finding, language)
    if len(shown) < len(diagnosis.findings):
        console.print(f"  [dim]{_word('more_findings', language, n=len(diagnosis.findings) - len(shown))}[/]\n")
    if diagnosis.study:
        _print_study(console, diagnosis.study, language)
    if diagnosis.run.loss:
        _print_loss(console, diagnosis.run, language)
    if shares:
        _print_shares(console, shares, language)
    _print_warnings(console, diagnosis.run.warnings, language)


def prediction_error(check: ReplayCheck, language: Language) -> str:
    """How well steps were predicted from each other, and of what the model was built where that is coarse."""
    error = check.prediction_error_percent
    shown = (
        _word("prediction_unknown", language)
        if error is None
        else _word("prediction_error", language, percent=f"{error:.1f}")
    )
    return f"{shown} · {_word('coarse', language)}" if check.level == "collectives" else shown


def evidence_line(evidence: tuple[Evidence, ...], language: Language) -> str:
    """Measured values in one line, those of the peers in brackets."""
    return " · ".join(_measured(each, language) for each in evidence)


def _measured(evidence: Evidence, language: Language) -> str:
    value = "?" if evidence.value is None else figure(evidence.value)
    measured = f"{evidence.metric} {value} {evidence.unit}".rstrip()
    if evidence.peers is None:
        return measured
    return measured + _word("peers", language, value=figure(evidence.peers))


def figure(value: float) -> str:
    """Four significant digits, thousands separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _head(run: RunFacts, language: Language) -> str:
    counts = {"ranks": run.ranks, "hosts": run.hosts, "steps": len(run.steps)}
    parts = [_word(f"{key}_1" if n == 1 else key, language, n=f"{n:,}") for key, n in counts.items() if n]
    if run.step_ms.median is not None:
        parts.append(_word("median_step", language, ms=f"{run.step_ms.median:,.1f}"))
    if run.mfu is not None:
        parts.append(_word("mfu", language, percent=f"{100 * run.mfu:.1f}"))
    return " · ".join(parts)


def _print_finding(console: Console, number: int, finding: Finding, language: Language) -> None:
    severity = text(f"output.severity.{finding.severity}", language)
    confidence = _word("confidence", language, percent=f"{100 * finding.confidence:.0f}")
    colour = "red" if finding.severity == "high" else "bold"
    console.print(
        f"  {number}  [{colour}]{escape(finding.title)}[/]   [dim]{severity} · {confidence}[/]", soft_wrap=True
    )
    if finding.gain.percent >= _MIN_GAIN_PERCENT:
        console.print(f"     {gain_line(finding.gain, language)}", style="green")
    evidence = escape(evidence_line(finding.evidence, language))
    console.print(f"     {_label('evidence', language)}{evidence}", soft_wrap=True)
    for doubt in finding.doubts[:1]:
        console.print(f"     {_label('doubt', language)}{escape(doubt)}", soft_wrap=True)
    console.print(f"     {_label('advice', language)}{escape(finding.advice[0])}", soft_wrap=True)
    if finding.see.startswith("kb/"):
        console.print(f"{'':{5 + _LABEL_CELLS}}[dim]{_word('details', language, id=finding.id)}[/]")
    console.print()


def gain_line(gain: Gain, language: Language) -> str:
    """if fixed: 412.0 → 351.0 ms per step (1.17× faster, 14.8 % less time)"""
    return _word(
        "gain",
        language,
        now=f"{gain.step_ms_now:,.1f}",
        fixed=f"{gain.step_ms_fixed:,.1f}",
        speedup="?" if gain.speedup is None else f"{gain.speedup:.2f}",
        percent=f"{gain.percent:.1f}",
    )


def _print_study(console: Console, study: StudyNumbers, language: Language) -> None:
    """The straggler study's own numbers, and the workers that could cause most."""
    shares = {"workers": study.worst_workers_share, "stage": study.last_stage_share}
    known = {name: "?" if share is None else f"{100 * share:.1f}" for name, share in shares.items()}
    times = {"now": f"{study.step_ms:,.1f}", "ideal": f"{study.ideal_ms:,.1f}", "slowdown": f"{study.slowdown:.3f}"}
    console.print(f"  {_label('study', language)}{_word('study_numbers', language, **times, **known)}", soft_wrap=True)
    worst = (
        _word("study_worker", language, rank=w.rank, stage=w.stage, replica=w.replica, slowdown=f"{w.slowdown:.3f}")
        for w in study.workers[:_MOST_WORKERS]
    )
    console.print(f"{'':{2 + _LABEL_CELLS}}{_word('study_workers', language)} {' · '.join(worst)}\n", soft_wrap=True)


def _nothing_found(run: RunFacts, shares: Mapping[str, float], language: Language) -> str:
    """That nothing stands out, unless much of the step is open all the same, a finding is withheld, or nothing was recorded."""
    if shares.get("unknown", 0.0) >= KNOWN:
        return _word("healthy_unknown", language)
    if run.withheld:
        return _word("healthy_withheld", language)
    left = run.open_percent
    if left is None or left < NOTABLE_PERCENT:
        return _word("healthy", language)
    most = max((part for part in run.loss if part.is_open), key=lambda part: part.ms)
    return _word("healthy_open", language, percent=f"{left:.1f}", cause=_loss_name(most, language))


def _print_loss(console: Console, run: RunFacts, language: Language) -> None:
    """From the mean step down to what computing needs; every part that is not 0.0 ms, so that the lines add up."""
    now, best = run.mean_step_ms or 0.0, run.best_step_ms or 0.0
    if not now:
        return
    rows = [(_word("loss_now", language), now, 0.0, "white", "")]
    level = now
    for part in run.loss:
        level -= part.ms
        if round(part.ms, 1):
            rows.append((_loss_name(part, language), part.ms, level, _loss_colour(part), _alone(part, language)))
    rows.append((_word("loss_best", language), best, 0.0, "blue", ""))
    widest = max(cell_len(name) for name, *_ in rows)
    for number, (name, ms, before, colour, note) in enumerate(rows):
        label = _label("loss", language) if number == 0 else " " * _LABEL_CELLS
        padding = " " * (widest - cell_len(name))
        indent = " " * _bar_cells(before / now, 0)
        bar = "█" * _bar_cells(ms / now, 1)
        console.print(
            f"  {label}{name}{padding} {ms:9,.1f} ms {100 * ms / now:5.1f} %  {indent}[{colour}]{bar}[/]  [dim]{note}[/]",
            soft_wrap=True,
        )
    console.print()


def _bar_cells(share: float, least: int) -> int:
    """Within the width of the whole step, also for a part that exceeds it because another one is negative."""
    return max(least, min(_BAR_CELLS, round(_BAR_CELLS * share)))


def _loss_name(part: LossPart, language: Language) -> str:
    """The id of a finding with its number, or the name of a part that no finding has."""
    if part.finding is not None:
        return f"{part.finding + 1} {part.cause}"
    return text(f"output.loss.{part.cause}", language)


def _loss_colour(part: LossPart) -> str:
    return "red" if part.finding is not None else _LOSS_COLOURS.get(part.cause, "white")


def _alone(part: LossPart, language: Language) -> str:
    """What fixing it alone saves, where other faults hide a part of that."""
    if part.alone_ms is None or abs(part.alone_ms - part.ms) < _MASKED_SHARE * abs(part.ms):
        return ""
    return _word("loss_alone", language, ms=f"{part.alone_ms:,.1f}")


def _print_shares(console: Console, shares: Mapping[str, float], language: Language) -> None:
    """One line per part of the step that takes at least one per cent, largest first."""
    parts = sorted(((share, part) for part, share in shares.items() if share >= 0.01), reverse=True)
    names = {part: text(f"output.part.{part}", language) for _, part in parts}
    widest = max(map(cell_len, names.values()), default=0)
    for number, (share, part) in enumerate(parts):
        label = _label("step", language) if number == 0 else " " * _LABEL_CELLS
        padding = " " * (widest - cell_len(names[part]))
        bar = "█" * max(1, round(_BAR_CELLS * share))
        console.print(f"  {label}{names[part]}{padding} {100 * share:5.1f} %  [{_COLOURS[part]}]{bar}[/]")
    if parts:
        console.print()


def _print_warnings(console: Console, warnings: tuple[str, ...], language: Language) -> None:
    distinct = list(dict.fromkeys(warnings))  # a file may fail several tables
    for warning in distinct[:_MOST_WARNINGS]:
        console.print(f"  [yellow]![/] {escape(warning)}", soft_wrap=True)
    if len(distinct) > _MOST_WARNINGS:
        left = _word("more_warnings", language, n=len(distinct) - _MOST_WARNINGS)
        console.print(f"  [yellow]![/] {left}", soft_wrap=True)


def _label(key: str, language: Language) -> str:
    word = _word(key, language)
    return f"[dim]{word}[/]" + " " * (_LABEL_CELLS - cell_len(word))


def _word(key: str, language: Language, **values: object) -> str:
    return text(f"output.terminal.{key}", language, **values)
