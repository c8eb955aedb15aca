"""`paceline compare`: what became faster or slower between two runs, and whether earlier findings are gone."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from paceline.advice.engine import diagnose
from paceline.advice.fate import GONE, NEW, STILL, UNSEEN, Fate, blind_spots, fates
from paceline.advice.finding import Diagnosis
from paceline.advice.present import title
from paceline.analysis.compare import Change, Comparison, Measured, measure
from paceline.analysis.compare import compare as side_by_side
from paceline.cli.language import Language, is_chinese
from paceline.cli.rows import format_rows
from paceline.cli.source import EngineOption, StoreOption, WorkersOption, opened

SCHEMA = "paceline.comparison/1"
_WORDS = {
    "run": ("{ranks} ranks · {steps} steps · {formats}", "{ranks} 张卡 · {steps} 步 · {formats}"),
    "before": ("before", "之前"), "after": ("after", "之后"), "change": ("change", "变化"), "noise": ("noise", "噪声"),
    "step": ("step time", "单步时间"),
    "computing": ("computing", "计算"), "exposed": ("exposed communication", "未掩盖通信"),
    "overlapped": ("overlapped communication", "已掩盖通信"), "free": ("free", "空闲"),
    "bubble": ("pipeline bubble", "流水线气泡"), "data_wait": ("data wait", "等待数据"),
    "faster": ("faster", "变快"), "slower": ("slower", "变慢"), "same": ("within noise", "噪声范围内"),
    "more": ("more", "增加"), "less": ("less", "减少"),
    "ranks": ("own time by rank", "各卡自身耗时"), "operators": ("operator types", "算子类型"),
    "transports": ("transports", "传输方式"), "links": ("links", "链路"), "phases": ("a step", "单步构成"),
    "unchanged": ("{n} within noise", "{n} 项在噪声范围内"), "others": ("{n} more changed", "另有 {n} 项变化"),
    "other_ranks": ("The runs have different ranks: only the step and its phases are compared.",
                    "两次运行的卡不同：仅比较单步时间及其构成。"),
    "findings": ("findings", "诊断结论"), "none": ("none before, none after", "前后均无"),
    GONE: ("gone", "已消失"), STILL: ("still there", "仍存在"), NEW: ("new", "新出现"),
    UNSEEN: ("not recorded any more", "不再有相应数据"),
    "gain": ("mending it gains {n:.1f} %", "修复可快 {n:.1f} %"),
}  # fmt: skip
_MARKS = {GONE: "green", STILL: "bold", NEW: "red", UNSEEN: "yellow"}
_MOST_ROWS = 5

Run_ = Annotated[Path, typer.Argument(help="Profile of one run, any format.")]


def compare(
    before: Run_,
    after: Run_,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for stdout.")] = None,
    fail_on_slower: Annotated[
        float | None,
        typer.Option(
            "--fail-on-slower", min=0, help="Exit 3 when a step is really slower, by more per cent than this."
        ),
    ] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the report.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Compare two runs: what became faster or slower beyond noise, and whether earlier findings are gone.

    Example:  paceline compare runs/monday runs/tuesday --fail-on-slower 3
    """
    language = "zh" if is_chinese(lang) else "en"
    old, old_diagnosis, _ = _examine(before, store and f"{store}/before", workers, engine)
    new, new_diagnosis, blind = _examine(after, store and f"{store}/after", workers, engine)
    result = side_by_side(old, new)
    told = fates(old_diagnosis, new_diagnosis, blind=blind)
    document = _as_json(result, told, (old_diagnosis, new_diagnosis), language)
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    if json_file is not None and str(json_file) == "-":
        sys.stdout.write(text)
    else:
        if json_file is not None:
            json_file.write_text(text, encoding="utf-8")
        _print(result, told, (old_diagnosis, new_diagnosis), language)
    slower = result.step.verdict == "slower" and (result.step.percent or 0) > (fail_on_slower or 0)
    if fail_on_slower is not None and slower:
        raise typer.Exit(3)


def _examine(
    source: Path, store: str | None, workers: int | None, engine: str | None
) -> tuple[Measured, Diagnosis, frozenset[str]]:
    """One run at a time, so that only one is open."""
    with opened(source, store, workers, engine) as run:
        return measure(run), diagnose(run), blind_spots(run)


def _as_json(
    result: Comparison, told: tuple[Fate, ...], diagnoses: tuple[Diagnosis, Diagnosis], language: str
) -> dict[str, Any]:
    tables = ("phases", "ranks", "operators", "transports", "links")
    return {
        "schema": SCHEMA,
        "before": diagnoses[0].run,
        "after": diagnoses[1].run,
        "same_ranks": result.same_ranks,
        "step": _change_json(result.step),
        **{name: [_change_json(change) for change in getattr(result, name)] for name in tables},
        "findings": [
            {
                "status": fate.status,
                "id": fate.finding.id,
                "title": title(fate.finding, language),
                "subject": {key: list(value) for key, value in asdict(fate.finding.subject).items()},
                "gain_percent_before": round(fate.before.gain.percent, 2) if fate.before else None,
                "gain_percent_after": round(fate.after.gain.percent, 2) if fate.after else None,
            }
            for fate in told
        ],
    }


def _change_json(change: Change) -> dict[str, Any]:
    percent = None if change.percent is None else round(change.percent, 2)
    numbers = {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(change).items()}
    return {**numbers, "percent": percent}


def _print(result: Comparison, told: tuple[Fate, ...], diagnoses: tuple[Diagnosis, Diagnosis], language: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print()
    for name, diagnosis in zip(("before", "after"), diagnoses, strict=True):
        run = diagnosis.run
        about = _word("run", language, ranks=run["ranks"], steps=len(run["steps"]), formats=", ".join(run["formats"]))
        console.print(f"  [dim]{_word(name, language):8}[/] {_plain(run['source'])}   [dim]{about}[/]", soft_wrap=True)
    console.print()
    _print_table(console, "phases", (result.step, *result.phases), language, every=True)
    if not result.same_ranks:
        console.print(f"  [yellow]![/] {_word('other_ranks', language)}\n")
    for name in ("ranks", "operators", "transports", "links"):
        _print_table(console, name, getattr(result, name), language)
    _print_findings(console, told, language)


def _print_table(console: Console, name: str, rows: tuple[Change, ...], language: str, *, every: bool = False) -> None:
    if not rows:
        return
    real = [change for change in rows if change.verdict != "same"]
    shown = list(rows) if every else real[:_MOST_ROWS]
    left = [] if every else [_word("unchanged", language, n=len(rows) - len(real))]
    if not every and len(real) > len(shown):
        left.insert(0, _word("others", language, n=len(real) - len(shown)))
    console.print(f"  [bold]{_word(name, language)}[/]   [dim]{' · '.join(left)}[/]")
    if shown:
        heads = ("", *(_word(key, language) for key in ("before", "after")), "", _word("change", language),
                 f"± {_word('noise', language)}", "")  # fmt: skip
        console.print(format_rows(heads, [_cells(c, name, language) for c in shown], right=frozenset({1, 2, 4, 5})))
    console.print()


def _cells(change: Change, table: str, language: str) -> tuple[str, ...]:
    name = _word(change.name, language) if table == "phases" else change.name
    percent = "" if change.percent is None else f"{change.percent:+.1f} %"
    noise = f"{100 * change.noise / change.before:.1f} %" if change.before else ""
    colour = {"slower": "red", "faster": "green"}.get(change.verdict, "dim")
    verdict = f"[{colour}]{_word(change.verdict, language)}[/]"
    return (
        f"    {_plain(name)}",
        f"{change.before:,.2f}",
        f"{change.after:,.2f}",
        change.unit,
        percent,
        noise,
        verdict,
    )


def _print_findings(console: Console, told: tuple[Fate, ...], language: str) -> None:
    nothing = "" if told else f"   [dim]{_word('none', language)}[/]"
    console.print(f"  [bold]{_word('findings', language)}[/]{nothing}")
    for fate in told:
        status = f"[{_MARKS[fate.status]}]{_word(fate.status, language)}[/]"
        gain = f"   [dim]{_word('gain', language, n=fate.after.gain.percent)}[/]" if fate.after else ""
        console.print(f"    {status}  {_plain(title(fate.finding, language))}{gain}", soft_wrap=True)
    console.print()


def _word(key: str, language: str, **values: object) -> str:
    return _WORDS[key][int(language == "zh")].format(**values)


def _plain(text: str) -> str:
    return str(text).replace("[", "\\[")
