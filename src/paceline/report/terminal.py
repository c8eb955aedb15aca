"""A diagnosis on one screen: what, who, how sure, what mending it gains, what to do; then where the time goes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console

from paceline.advice.finding import Diagnosis, Finding
from paceline.advice.present import advice, proof, title

_WORDS = {
    "sure": ("{n:.0f} % sure", "置信度 {n:.0f} %"),
    "gain": ("mended: {now:,.1f} → {fixed:,.1f} ms a step, {percent:.1f} % faster",
             "修复后：每步 {now:,.1f} → {fixed:,.1f} 毫秒，快 {percent:.1f} %"),
    "proof": ("proof", "依据"),
    "do": ("do", "建议"),
    "healthy": ("Nothing stands out: no rank, link, stage or operator is slower than its peers.",
                "未见异常：没有明显慢于同类的卡、链路、阶段或算子。"),
    "replay": ("replay of the unchanged run is off by {n:+.1f} %", "原样重放误差 {n:+.1f} %"),
    "explain": ("explain: paceline kb {id}", "详解：paceline kb {id}"),
    "more": ("… and {n} more: --top 0", "……另有 {n} 条：--top 0"),
    "rank": ("{n:,} rank", "{n:,} 张卡"),
    "host": ("{n:,} host", "{n:,} 台主机"),
    "one step": ("{n:,} step", "{n:,} 步"),
    "median": ("median step {ms:,.1f} ms", "单步中位数 {ms:,.1f} 毫秒"),
    "warned": ("… and {n} more: in the report, and with --json", "……另有 {n} 条：见报告或 --json"),
    "step": ("a step", "单步"),
    "compute": ("compute", "计算"),
    "overlapped": ("hidden communication", "被掩盖的通信"),
    "exposed": ("exposed communication", "未掩盖的通信"),
    "waiting": ("waiting for others", "等待其他卡"),
    "tail": ("tail", "拖尾"),
    "free": ("free", "空闲"),
    "data": ("data", "数据"),
}  # fmt: skip
_SEVERITY = {"high": "高", "medium": "中", "low": "低", "info": "提示"}
_COLOURS = {"compute": "blue", "overlapped": "cyan", "exposed": "dark_orange", "waiting": "bright_black",
            "tail": "blue", "free": "white", "data": "magenta"}  # fmt: skip
_MOST_WARNINGS = 5
_LABEL = 8
_BAR = 40
"""Cells of a whole step."""


def print_diagnosis(
    diagnosis: Diagnosis, language: str, top: int, *, shares: Mapping[str, float] | None = None
) -> None:
    """`shares` says which part of a step goes where, see analysis/steps.py."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    # "+ 0.0": rounding leaves a minus before nothing otherwise
    residual = _word("replay", language, n=round(100 * diagnosis.residual, 1) + 0.0)
    console.print(f"\n  {_head(diagnosis.run, language)}   [dim]{residual}[/]\n")
    if not diagnosis.findings:
        console.print(f"  {_word('healthy', language)}\n")
    shown = diagnosis.findings[: top or None]
    for number, finding in enumerate(shown, 1):
        _print_finding(console, number, finding, language)
    if len(shown) < len(diagnosis.findings):
        console.print(f"  [dim]{_word('more', language, n=len(diagnosis.findings) - len(shown))}[/]\n")
    if shares:
        _print_shares(console, shares, language)
    warnings = diagnosis.run["warnings"]
    for warning in warnings[:_MOST_WARNINGS]:
        console.print(f"  [yellow]![/] {_plain(str(warning))}", soft_wrap=True)
    if len(warnings) > _MOST_WARNINGS:
        console.print(f"  [yellow]![/] {_word('warned', language, n=len(warnings) - _MOST_WARNINGS)}", soft_wrap=True)


def _head(run: Mapping[str, Any], language: str) -> str:
    counts = {"rank": run["ranks"], "host": run["hosts"], "one step": len(run["steps"])}
    parts = [_word(key, language, n=n) + ("s" if language != "zh" and n != 1 else "") for key, n in counts.items()]
    if run["step_ms"]["median"] is not None:
        parts.append(_word("median", language, ms=run["step_ms"]["median"]))
    if run.get("mfu") is not None:
        parts.append(f"MFU {100 * run['mfu']:.1f} %")
    return " · ".join(parts)


def _print_finding(console: Console, number: int, finding: Finding, language: str) -> None:
    severity = _SEVERITY[finding.severity] if language == "zh" else finding.severity
    sure = _word("sure", language, n=100 * finding.confidence)
    colour = "red" if finding.severity == "high" else "bold"
    console.print(
        f"  {number}  [{colour}]{_plain(title(finding, language))}[/]   [dim]{severity} · {sure}[/]", soft_wrap=True
    )
    gain = finding.gain
    if gain.percent >= 0.1:
        values = {"now": gain.step_ms_now, "fixed": gain.step_ms_fixed, "percent": gain.percent}
        console.print(f"     {_word('gain', language, **values)}", style="green")
    console.print(f"     {_label('proof', language)}{_plain(proof(finding, language))}", soft_wrap=True)
    console.print(f"     {_label('do', language)}{_plain(advice(finding, language)[0])}", soft_wrap=True)
    if finding.entry is None:
        console.print(f"{'':13}[dim]{_word('explain', language, id=finding.id)}[/]")
    console.print()


def _print_shares(console: Console, shares: Mapping[str, float], language: str) -> None:
    """One line per part of the step that is worth a per cent, largest first."""
    parts = sorted(((share, part) for part, share in shares.items() if share >= 0.01), reverse=True)
    widest = max((cell_len(_word(part, language)) for _, part in parts), default=0)
    for number, (share, part) in enumerate(parts):
        name = _word(part, language)
        label = _label("step", language) if number == 0 else " " * _LABEL
        pad = " " * (widest - cell_len(name))
        bar = "█" * max(1, round(_BAR * share))
        console.print(f"  {label}{name}{pad} {100 * share:5.1f} %  [{_COLOURS[part]}]{bar}[/]")
    if parts:
        console.print()


def _label(key: str, language: str) -> str:
    word = _word(key, language)
    return f"[dim]{word}[/]" + " " * (_LABEL - cell_len(word))


def _word(key: str, language: str, **values: object) -> str:
    return _WORDS[key][int(language == "zh")].format(**values)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
