"""`paceline diagnose`: find what slows a run; print it, and write diagnosis.json and report.html."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import LANGUAGES, Language, text
from paceline.diagnosis.custom_rules import find_rule
from paceline.diagnosis.diagnose import examine
from paceline.diagnosis.finding import SEVERITIES, Diagnosis
from paceline.diagnosis.hardware import Hardware, default_hardware, load_hardware
from paceline.diagnosis.render import in_words
from paceline.diagnosis.rule import RuleFunction
from paceline.metrics.rank_performance import rank_performance
from paceline.metrics.steps import shares_of
from paceline.output.html_report import render_html, write_html
from paceline.output.json_text import indented_json
from paceline.output.masking import mask_hosts as with_masked_hosts
from paceline.output.report_data import ReportData, report_data
from paceline.output.terminal import print_diagnosis
from paceline.run.run import Run

DEFAULT_DIRECTORY = Path("paceline-report")
_STDOUT = Path("-")


def diagnose(
    source: Source,
    out: Annotated[
        Optional[Path],
        typer.Option(
            "--out",
            "--output",
            "-o",
            help="Directory for report.html and diagnosis.json.  [default: paceline-report, unless --json or --html]",
        ),
    ] = None,
    json_file: Annotated[
        Optional[Path], typer.Option("--json", help="Write the diagnosis as JSON; - for stdout.")
    ] = None,
    html_file: Annotated[
        Optional[Path], typer.Option("--html", help="Write the report as one HTML file; - for stdout.")
    ] = None,
    mask_hosts: Annotated[
        bool, typer.Option("--mask-hosts", help="Replace host names and addresses in the files written.")
    ] = False,
    step: Annotated[Optional[int], typer.Option("--step", min=0, help="Only this step.")] = None,
    steps: Annotated[Optional[str], typer.Option("--steps", help="Only these steps, e.g. 3-9.")] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Findings to show; 0 = all.")] = 5,
    fail_on: Annotated[
        Optional[str], typer.Option("--fail-on", help="Exit 3 at this severity or above (for CI).")
    ] = None,
    rules: Annotated[
        Optional[List[str]],
        typer.Option("--rules", help="Your own rule: a TOML file, or entry:NAME of a package; may be repeated."),
    ] = None,
    hardware: Annotated[
        Optional[Path],
        typer.Option("--hardware", help="TOML with speeds of links and cards that differ from the defaults."),
    ] = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the report.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Find what slows a run, prove it, and say what fixing it would gain.

    Example:  paceline diagnose runs/llama-16 --lang zh --out paceline-report
    """
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on}: unknown severity", hint=f"one of {', '.join(SEVERITIES)}")
    request = _DiagnosisRequest(
        steps=_parse_steps(step, steps),
        files=_output_files(out, json_file, html_file),
        hardware=load_hardware(hardware) if hardware else default_hardware(),
        custom_rules=[find_rule(rule) for rule in rules or ()],
        language=resolve_language(lang),
        mask_hosts=mask_hosts,
    )
    with opened(source, store, workers, engine) as run:
        result = _diagnose(run, request)
    # Files first: when the reader of stdout goes away (head, less), they are already written.
    written = _write_files(request.files, result, request.language)
    if not request.files.use_stdout:
        print_diagnosis(result.diagnosis, request.language, top, shares=result.shares)
        for file in written:
            typer.echo(f"  {text('cli.diagnose.report', request.language)}  {file}")
    if fail_on and _reaches(fail_on, result.diagnosis):
        raise typer.Exit(3)


@dataclass(frozen=True)
class _OutputFiles:
    json: Path | None
    html: Path | None
    by_name: bool
    """The user named at least one of them."""

    @property
    def use_stdout(self) -> bool:
        """stdout carries a file, so nothing else may be printed there."""
        return _STDOUT in (self.json, self.html)


@dataclass(frozen=True)
class _DiagnosisRequest:
    steps: tuple[int, ...] | None
    files: _OutputFiles
    hardware: Hardware
    custom_rules: Sequence[RuleFunction]
    language: Language
    mask_hosts: bool


@dataclass(frozen=True)
class _DiagnosisResult:
    diagnosis: Diagnosis
    """For the terminal: host names are never masked there."""
    public: Diagnosis
    """For files."""
    report: ReportData | None
    shares: Mapping[str, float]


def _diagnose(run: Run, request: _DiagnosisRequest) -> _DiagnosisResult:
    examination = examine(run, steps=request.steps, hardware=request.hardware, custom_rules=request.custom_rules)
    diagnoses = {each: in_words(examination, each) for each in LANGUAGES}
    diagnosis = diagnoses[request.language]
    shares = {} if request.files.use_stdout else shares_of(rank_performance(run, request.steps).rank_means)
    if not request.files.html and not request.mask_hosts:
        return _DiagnosisResult(diagnosis, diagnosis, None, shares)
    hardware = request.hardware
    report = report_data(run, diagnoses, nominal=hardware.nominal_speeds, capacity_for=hardware.memory_for)
    if request.mask_hosts:
        report = with_masked_hosts(report)
    return _DiagnosisResult(diagnosis, report.diagnoses[request.language], report, shares)


def _output_files(out: Path | None, json_file: Path | None, html_file: Path | None) -> _OutputFiles:
    if json_file == _STDOUT == html_file:
        raise UsageError("--json - --html -: only one of them can go to stdout")
    by_name = any(file is not None for file in (out, json_file, html_file))
    directory = out or (None if by_name else DEFAULT_DIRECTORY)
    if directory is not None:
        json_file, html_file = json_file or directory / "diagnosis.json", html_file or directory / "report.html"
    return _OutputFiles(json_file, html_file, by_name)


def _write_files(files: _OutputFiles, result: _DiagnosisResult, language: Language) -> list[Path]:
    """Write what was asked for; returns the files written."""
    written = []
    if files.json == _STDOUT:
        sys.stdout.write(indented_json(result.public))
    elif files.json:
        atomic_write_text(files.json, indented_json(result.public))
        written.append(files.json)
    if result.report is None or files.html is None:
        return written
    if files.html == _STDOUT:
        sys.stdout.write(render_html(result.report, language=language))
        return written
    try:
        write_html(result.report, files.html, language=language)
    except PacelineError as error:
        if files.by_name:
            raise
        # The page was not asked for by name, and everything else is written.
        typer.echo(f"paceline: {error}\n          {error.hint or ''}".rstrip(), err=True)
        return written
    return [files.html, *written]


def _reaches(severity: str, diagnosis: Diagnosis) -> bool:
    """Any finding has this severity or a higher one."""
    limit = [str(each) for each in SEVERITIES].index(severity)
    return any(SEVERITIES.index(finding.severity) <= limit for finding in diagnosis.findings)


def _parse_steps(step: int | None, steps: str | None) -> tuple[int, ...] | None:
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
