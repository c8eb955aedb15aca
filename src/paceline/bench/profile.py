"""What the recording of a run says: where a step's time goes, and the diagnosis."""

from __future__ import annotations

from pathlib import Path

import paceline
from paceline.bench.result import ProfilePart
from paceline.errors import PacelineError


def examine(source: Path) -> tuple[ProfilePart | None, tuple[str, ...]]:
    """None, and why, when the recording cannot be read: the measurement is good without it."""
    # The engine takes half a second to load, which only recorded runs need.
    from paceline.advice.engine import diagnose
    from paceline.advice.present import as_json, title
    from paceline.analysis.steps import step_shares

    try:
        with paceline.open(source) as run:
            diagnosis = diagnose(run)
            shares = step_shares(run, tuple(diagnosis.run["steps"]))
    except PacelineError as error:
        return None, (f"the profile could not be diagnosed: {error}",)
    part = ProfilePart(
        source=str(source),
        step_ms=diagnosis.run["step_ms"]["median"],
        shares=shares,
        diagnosis=as_json(diagnosis, "en"),
        titles_zh=tuple(title(finding, "zh") for finding in diagnosis.findings),
    )
    return part, ()
