"""Diagnose the recorded run of a benchmark: step shares and findings."""

from __future__ import annotations

from pathlib import Path

import paceline
from paceline.bench.result import ProfilePart
from paceline.core.errors import PacelineError


def diagnose_profile(source: Path) -> tuple[ProfilePart | None, tuple[str, ...]]:
    """None, and a warning, when the recording cannot be read: the measurement is valid without it."""
    # The engine takes half a second to load, which only recorded runs need.
    from paceline.diagnosis.diagnose import examine as examine_run
    from paceline.diagnosis.render import in_words, title
    from paceline.metrics.rank_performance import rank_performance
    from paceline.metrics.steps import shares_of

    try:
        with paceline.open(source) as run:
            examination = examine_run(run)
            shares = shares_of(rank_performance(run).rank_means)
    except PacelineError as error:
        return None, (f"the profile could not be diagnosed: {error}",)
    part = ProfilePart(
        source=str(source),
        step_ms=examination.run.step_ms.median,
        shares=shares,
        diagnosis=in_words(examination, "en"),
        titles_zh=tuple(title(finding, "zh") for finding in examination.findings),
    )
    return part, ()
