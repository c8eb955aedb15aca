"""`paceline diagnose`: what slows a run, who is at fault, what mending it would gain, what to do."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paceline.advice.engine import diagnose as examine
from paceline.advice.finding import SEVERITIES
from paceline.advice.hardware import load_hardware, usual_hardware
from paceline.advice.own_rules import own_rule
from paceline.advice.present import as_json
from paceline.analysis.steps import shares_of, step_shares
from paceline.cli.language import Language, is_chinese
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened
from paceline.errors import PacelineError, UsageError
from paceline.report.data import ReportData, report_data
from paceline.report.html import render_html, write_html
from paceline.report.masking import masked
from paceline.report.terminal import print_diagnosis
from paceline.whole import write_whole

USUAL_PLACE = Path("paceline-report")
_STDOUT = Path("-")


def diagnose(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            "-o",
            help="Directory for report.html and diagnosis.json.  [default: paceline-report, unless --json or --html]",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the diagnosis as JSON; - for stdout.")] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write the report as one HTML file; - for stdout.")
    ] = None,
    mask_hosts: Annotated[
        bool, typer.Option("--mask-hosts", help="Hide host names and addresses in what is written.")
    ] = False,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Only this step.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", help="Only these steps, e.g. 3-9.")] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Findings to show; 0 = all.")] = 5,
    fail_on: Annotated[str | None, typer.Option("--fail-on", help="Exit 3 at this severity or above (for CI).")] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", help="A rule of your own: a TOML file, or entry:NAME of a package; repeatable."),
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option("--hardware", help="TOML with what differs from the usual speeds of links and cards.")
    ] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the report.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Find what slows a run, prove it, and say what mending it would gain.

    Example:  paceline diagnose runs/llama-16 --lang zh --out paceline-report
    """
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on}: no such severity", hint=f"one of {', '.join(SEVERITIES)}")
    chosen = _chosen_steps(step, steps)
    places = _places(out, json_file, html_file)
    profile = load_hardware(hardware) if hardware else usual_hardware()
    own_rules = [own_rule(rule) for rule in rules or ()]
    language = "zh" if is_chinese(lang) else "en"
    with opened(source, store, workers, engine) as run:
        diagnosis = examine(run, steps=chosen, hardware=profile, own_rules=own_rules)
        public = {each: as_json(diagnosis, each) for each in ("en", "zh")}
        report = report_data(run, public, nominal=profile.nominal_speeds) if places.html or mask_hosts else None
        if report is not None:
            shares = shares_of(report.tables["breakdown"])
        else:
            shares = {} if places.silent else step_shares(run, tuple(diagnosis.run["steps"]))
    if report is not None and mask_hosts:
        report = masked(report)
        public = {each: dict(report.diagnoses[each]) for each in public}
    # Files first: a reader of the screen that goes away (head, less) must not cost them.
    written = _write_files(places, json.dumps(public[language], ensure_ascii=False, indent=2), report, language)
    if not places.silent:
        print_diagnosis(diagnosis, language, top, shares=shares)
        for place in written:
            typer.echo(f"  {'报告' if language == 'zh' else 'report'}  {place}")
    if fail_on and any(SEVERITIES.index(f.severity) <= SEVERITIES.index(fail_on) for f in diagnosis.findings):
        raise typer.Exit(3)


@dataclass(frozen=True)
class _Places:
    """Where the two files go."""

    json: Path | None
    html: Path | None
    asked: bool

    @property
    def silent(self) -> bool:
        """stdout belongs to a file."""
        return _STDOUT in (self.json, self.html)


def _places(out: Path | None, json_file: Path | None, html_file: Path | None) -> _Places:
    if json_file == _STDOUT == html_file:
        raise UsageError("--json - --html -: only one of them can go to stdout")
    asked = any(place is not None for place in (out, json_file, html_file))
    folder = out or (None if asked else USUAL_PLACE)
    if folder is not None:
        json_file, html_file = json_file or folder / "diagnosis.json", html_file or folder / "report.html"
    return _Places(json_file, html_file, asked)


def _write_files(places: _Places, diagnosis: str, report: ReportData | None, language: str) -> list[Path]:
    """Write what was asked for; say which files there are now."""
    written = []
    if places.json == _STDOUT:
        sys.stdout.write(f"{diagnosis}\n")
    elif places.json:
        write_whole(places.json, f"{diagnosis}\n")
        written.append(places.json)
    if report is None or places.html is None:
        return written
    if places.html == _STDOUT:
        sys.stdout.write(render_html(report, language=language))
        return written
    try:
        write_html(report, places.html, language=language)
    except PacelineError as error:
        if places.asked:
            raise
        # Nobody asked for the page by name, and everything else is there.
        typer.echo(f"paceline: {error}\n          {error.hint or ''}".rstrip(), err=True)
        return written
    return [places.html, *written]


def _chosen_steps(step: int | None, steps: str | None) -> tuple[int, ...] | None:
    if step is not None and steps is not None:
        raise UsageError("--step and --steps exclude each other", hint="example: --steps 3-9")
    if step is not None:
        return (step,)
    if steps is None:
        return None
    low, dash, high = steps.partition("-")
    last = high if dash else low
    if not (low.isdecimal() and last.isdecimal()) or int(last) - int(low) > 1_000_000:
        raise UsageError(f"--steps {steps}: not a step or a range of steps", hint="example: 3-9")
    if int(last) < int(low):
        raise UsageError(f"--steps {steps}: the first step comes after the last", hint=f"example: {last}-{low}")
    return tuple(range(int(low), int(last) + 1))
