"""`paceline diagnose`: what slows a run, who is at fault, what mending it would gain, what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.advice.engine import diagnose as examine
from paceline.advice.finding import SEVERITIES, Diagnosis, Finding
from paceline.advice.hardware import nominal_speeds
from paceline.advice.knowledge import load_entry
from paceline.advice.present import as_json, title
from paceline.cli.language import Language, is_chinese
from paceline.cli.source import Source, StoreOption, WorkersOption, opened
from paceline.errors import UsageError
from paceline.report.data import report_data
from paceline.report.html import write_html
from paceline.report.masking import masked

_WORDS = {
    "sure": ("{n:.0f} % sure", "置信度 {n:.0f} %"),
    "gain": ("mended: {now:,.1f} → {fixed:,.1f} ms a step, {percent:.1f} % faster",
             "修复后：每步 {now:,.1f} → {fixed:,.1f} 毫秒，快 {percent:.1f} %"),
    "proof": ("proof", "依据"),
    "do": ("do", "建议"),
    "peers": ("peers", "同类"),
    "healthy": ("Nothing stands out: no rank, link, stage or operator is slower than its peers.",
                "未见异常：没有明显慢于同类的卡、链路、阶段或算子。"),
    "replay": ("replay of the unchanged run is off by {n:+.1f} %", "原样重放误差 {n:+.1f} %"),
    "report": ("report", "报告"),
    "explain": ("explain: paceline kb {id}", "详解：paceline kb {id}"),
    "head": ("{ranks} rank(s) · {hosts} host(s) · {steps} step(s) · median step {ms} ms",
             "{ranks} 张卡 · {hosts} 台主机 · {steps} 步 · 单步中位数 {ms} 毫秒"),
}  # fmt: skip
_SEVERITY = {"high": "高", "medium": "中", "low": "低", "info": "提示"}


def diagnose(
    source: Source,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write report.html and diagnosis.json into this directory.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the diagnosis as JSON; - for stdout.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file.")] = None,
    mask_hosts: Annotated[
        bool, typer.Option("--mask-hosts", help="Hide host names and addresses in what is written.")
    ] = False,
    steps: Annotated[str | None, typer.Option("--steps", help="Only these steps, e.g. 3-9.")] = None,
    top: Annotated[int, typer.Option("--top", help="Findings to show; 0 = all.")] = 5,
    fail_on: Annotated[str | None, typer.Option("--fail-on", help="Exit 3 at this severity or above (for CI).")] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the report.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
) -> None:
    """Find what slows a run, prove it, and say what mending it would gain.

    Example:  paceline diagnose runs/llama-16 --lang zh --out paceline-report
    """
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on}: no such severity", hint=f"one of {', '.join(SEVERITIES)}")
    language = "zh" if is_chinese(lang) else "en"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        json_file, html_file = json_file or out / "diagnosis.json", html_file or out / "report.html"
    with opened(source, store, workers) as run:
        diagnosis = examine(run, steps=_step_range(steps))
        public = {each: as_json(diagnosis, each) for each in ("en", "zh")}
        report = report_data(run, public, nominal=nominal_speeds()) if html_file or mask_hosts else None
    if report is not None and mask_hosts:
        report = masked(report)
        public = {each: dict(report.diagnoses[each]) for each in public}
    if report is not None and html_file is not None:
        write_html(report, html_file, language=language)
    text = json.dumps(public[language], ensure_ascii=False, indent=2) + "\n"
    if json_file is not None and str(json_file) == "-":
        sys.stdout.write(text)
    else:
        if json_file is not None:
            json_file.write_text(text, encoding="utf-8")
        print_diagnosis(diagnosis, language, top)
        if html_file is not None:
            typer.echo(f"  {_word('report', language)}   {html_file}")
    if fail_on and any(SEVERITIES.index(f.severity) <= SEVERITIES.index(fail_on) for f in diagnosis.findings):
        raise typer.Exit(3)


def print_diagnosis(diagnosis: Diagnosis, language: str, top: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    run = diagnosis.run
    head = _word("head", language, ranks=run["ranks"], hosts=run["hosts"], steps=len(run["steps"]),
                 ms=f"{run['step_ms']['median'] or 0:,.1f}")  # fmt: skip
    console.print(f"\n  {head}   [dim]{_word('replay', language, n=100 * diagnosis.residual)}[/]\n")
    if not diagnosis.findings:
        console.print(f"  {_word('healthy', language)}\n")
    shown = diagnosis.findings[: top or None]
    for number, finding in enumerate(shown, 1):
        _print_finding(console, number, finding, language)
    for warning in run["warnings"][:5]:
        console.print(f"  [yellow]![/] {warning}".replace("[rank", "\\[rank"), soft_wrap=True)


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
    proof = " · ".join(
        f"{entry.metric} {entry.value:g} {entry.unit}"
        + (f" ({_word('peers', language)} {entry.peers:g})" if entry.peers is not None else "")
        for entry in finding.evidence
    )
    console.print(f"     [dim]{_word('proof', language)}[/]   {_plain(proof)}", soft_wrap=True)
    advice = load_entry(finding.id).text(language).advice
    console.print(f"     [dim]{_word('do', language)}[/]      {_plain(advice[0])}", soft_wrap=True)
    console.print(f"              [dim]{_word('explain', language, id=finding.id)}[/]\n")


def _word(key: str, language: str, **values: object) -> str:
    return _WORDS[key][int(language == "zh")].format(**values)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def _step_range(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    low, _, high = text.partition("-")
    if not (low.isdecimal() and (high or low).isdecimal()) or int(high or low) - int(low) > 1_000_000:
        raise UsageError(f"--steps {text}: not a step or a range of steps", hint="example: 3-9")
    return tuple(range(int(low), int(high or low) + 1))
