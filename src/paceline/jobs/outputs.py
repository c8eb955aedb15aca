"""A job's outputs, brought here."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle
from paceline.storage.location import is_remote
from paceline.storage.selection import Rule
from paceline.storage.transfer import Options, transfer

_RESULT = re.compile(r"(?:[^/]+/){0,2}(?:throughput_\d+|accuracy(?:_\d+)?|ranksize|result)\.json")


def is_result(key: str) -> bool:
    """The small files a benchmark is scored from; everything else may be terabytes of checkpoints."""
    return _RESULT.fullmatch(key) is not None


def fetch(handle: JobHandle, target: Path, rule: Rule) -> Path:
    """Each output below `target`/<its name>; what lies here already is only looked at."""
    found = 0
    for name, where in handle.outputs.items():
        if not is_remote(where) and Path(where).absolute() == (target / name).absolute():
            files = (path for path in Path(where).rglob("*") if path.is_file())
            found += sum(rule(path.relative_to(where).as_posix()) for path in files)
            continue
        try:
            report = transfer(where, target / name, Options(rule=rule)).raise_failures()
        except UsageError:
            continue  # nothing there: said below, for all outputs together
        found += report.moved + report.same
    if not found:
        places = ", ".join(handle.outputs.values())
        raise PacelineError(
            f"{handle.id}: wrote nothing that was asked for to {places}",
            hint=f"does the script use --{' and --'.join(handle.outputs)}? Its logs: {handle.logs}",
        )
    return target
