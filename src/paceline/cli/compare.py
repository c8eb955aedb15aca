"""`paceline compare`: what became faster or slower between two runs, and which findings are gone or new."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.console.table_output import format_rows
from paceline.cli.options.source_option import EngineOption, StoreOption, WorkersOption, opened
from paceline.core.i18n import Language, text
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Diagnosis
from paceline.diagnosis.finding_diff import FindingChange, compare_findings, unrecorded_kinds
from paceline.metrics.compare import Change, Comparison, Measured, measure
from paceline.metrics.compare import compare as side_by_side
from paceline.output.comparison import comparison_document
from paceline.output.console import Console
from paceline.output.json_text import indented_json

_MARKS = {"gone": "green", "still": "bold", "new": "red", "unseen": "yellow"}
_MOST_ROWS = 5

Run_ = Annotated[Path, typer.Argument(help="Profile of one run, any format.")]


def compare(
    before: Run_,
    after: Run_,
    json_file: Annotated[Optional[Path], typer.Option("--json", help="Write the result as JSON; - for stdout.")] = None,
    fail_on_slower: Annotated[
        Optional[float],
        typer.Option(
            "--fail-on-slower",
            min=0,
            help="Exit 3 when the step time grew beyond noise and by more per cent than this.",
        ),
    ] = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the report.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Compare two runs: what became faster or slower beyond noise, and which findings are gone or new.

    Example:  paceline compare runs/monday runs/tuesday --fail-on-slower 3
    """
    language = resolve_language(lang)
    old = _examine(before, language, store=store and f"{store}/before", workers=workers, engine=engine)
    new = _examine(after, language, store=store and f"{store}/after", workers=workers, engine=engine)
    result = side_by_side(old.measured, new.measured)
    findings = compare_findings(old.diagnosis, new.diagnosis, unrecorded=new.unrecorded)
    document = comparison_document(result, findings, before=old.diagnosis.run, after=new.diagnosis.run)
    content = indented_json(document)
    if json_file is not None and str(json_file) == "-":
        sys.stdout.write(content)
    else:
        if json_file is not None:
            json_file.write_text(content, encoding="utf-8")
        _print(result, findings, (old.diagnosis, new.diagnosis), language)
    slower = result.step.verdict == "slower" and (result.step.percent or 0) > (fail_on_slower or 0)
    if fail_on_slower is not None and slower:
        raise typer.Exit(3)


@dataclass(frozen=True)
class _Examined:
    measured: Measured
    diagnosis: Diagnosis
    unrecorded: frozenset[str]
    """Kinds of subjects the run has no rows for."""


def _examine(
    source: Path, language: Language, *, store: str | None, workers: int | None, engine: str | None
) -> _Examined:
    """One run at a time, so that only one is open."""
    with opened(source, store, workers, engine) as run:
        return _Examined(measure(run), diagnose(run, language=language), unrecorded_kinds(run))


def _print(
    result: Comparison,
    findings: tuple[FindingChange, ...],
    diagnoses: tuple[Diagnosis, Diagnosis],
    language: Language,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print()
    for name, diagnosis in zip(("before", "after"), diagnoses, strict=True):
        run = diagnosis.run
        about = text("cli.compare.run", language, ranks=run.ranks, steps=len(run.steps), formats=", ".join(run.formats))
        console.print(
            f"  [dim]{text(f'cli.compare.{name}', language):8}[/] {_plain(run.source)}   [dim]{about}[/]",
            soft_wrap=True,
        )
    console.print()
    _print_table(console, "phases", (result.step, *result.phases), language, every=True)
    if not result.same_ranks:
        console.print(f"  [yellow]![/] {text('cli.compare.other_ranks', language)}\n")
    for name in ("ranks", "operators", "transports", "links"):
        _print_table(console, name, getattr(result, name), language)
    _print_findings(console, findings, language)


def _print_table(
    console: Console, name: str, rows: tuple[Change, ...], language: Language, *, every: bool = False
) -> None:
    if not rows:
        return
    real = [change for change in rows if change.verdict != "same"]
    shown = list(rows) if every else real[:_MOST_ROWS]
    left = [] if every else [text("cli.compare.unchanged", language, n=len(rows) - len(real))]
    if not every and len(real) > len(shown):
        left.insert(0, text("cli.compare.others", language, n=len(real) - len(shown)))
    console.print(f"  [bold]{text(f'cli.compare.{name}', language)}[/]   [dim]{' · '.join(left)}[/]")
    if shown:
        heads = (
            "",
            *(text(f"cli.compare.{key}", language) for key in ("before", "after")),
            "",
            text("cli.compare.change", language),
            f"± {text('cli.compare.noise', language)}",
            "",
        )
        console.print(format_rows(heads, [_cells(c, name, language) for c in shown], right=frozenset({1, 2, 4, 5})))
    console.print()


def _cells(change: Change, table: str, language: Language) -> tuple[str, ...]:
    name = text(f"cli.compare.{change.name}", language) if table == "phases" else change.name
    percent = "" if change.percent is None else f"{change.percent:+.1f} %"
    noise = "" if change.noise_percent is None else f"{change.noise_percent:.1f} %"
    colour = {"slower": "red", "faster": "green"}.get(change.verdict, "dim")
    verdict = f"[{colour}]{text(f'cli.compare.{change.verdict}', language)}[/]"
    return (
        f"    {_plain(name)}",
        f"{change.before:,.2f}",
        f"{change.after:,.2f}",
        change.unit,
        percent,
        noise,
        verdict,
    )


def _print_findings(console: Console, findings: tuple[FindingChange, ...], language: Language) -> None:
    nothing = "" if findings else f"   [dim]{text('cli.compare.none', language)}[/]"
    console.print(f"  [bold]{text('cli.compare.findings', language)}[/]{nothing}")
    for change in findings:
        status = f"[{_MARKS[change.status]}]{text(f'cli.compare.{change.status}', language)}[/]"
        gain = f"   [dim]{text('cli.compare.gain', language, n=change.after.gain.percent)}[/]" if change.after else ""
        console.print(f"    {status}  {_plain(change.finding.title)}{gain}", soft_wrap=True)
    console.print()


def _plain(text: str) -> str:
    return str(text).replace("[", "\\[")
