"""Diagnose the recorded run of a benchmark: step shares and findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import paceline
from paceline.bench.result import ProfilePart
from paceline.core.errors import PacelineError
from paceline.core.message import Sentence, message

if TYPE_CHECKING:
    from paceline.diagnosis.rule_finding import Examination
    from paceline.run.run import Run


def diagnose_profile(source: Path, report: Path) -> tuple[ProfilePart | None, tuple[Sentence, ...]]:
    """With its report; None, and a warning, when the recording cannot be read: the measurement is valid without it."""
    # The engine takes half a second to load, which only recorded runs need.
    from paceline.diagnosis.diagnose import examine as examine_run
    from paceline.diagnosis.render import in_words, title
    from paceline.metrics.rank_performance import rank_performance
    from paceline.metrics.steps import shares_of

    try:
        with paceline.open(source) as run:
            examination = examine_run(run)
            shares = shares_of(rank_performance(run).rank_means)
            problems = _write_report(run, examination, report)
    except PacelineError as error:
        return None, (message("no_diagnosis", error=error),)
    part = ProfilePart(
        source=str(source),
        step_ms=examination.run.step_ms.median,
        shares=shares,
        diagnosis=in_words(examination, "en"),
        titles_zh=tuple(title(finding, "zh") for finding in examination.findings),
        report="" if problems else report.name,
    )
    return part, problems


def _write_report(run: Run, examination: Examination, report: Path) -> tuple[Sentence, ...]:
    """What is in the way of it, if something is."""
    from paceline.core.i18n import LANGUAGES
    from paceline.diagnosis.hardware import default_hardware
    from paceline.diagnosis.render import in_words
    from paceline.output.html_report import write_html
    from paceline.output.report_data import report_data

    diagnoses, hardware = {each: in_words(examination, each) for each in LANGUAGES}, default_hardware()
    try:
        data = report_data(run, diagnoses, nominal=hardware.nominal_speeds, capacity_for=hardware.memory_for)
        write_html(data, report)
    except PacelineError as error:
        return (message("no_report", error=error),)
    return ()
