"""Download a job's outputs."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle
from paceline.storage.file_selection import FileFilter
from paceline.storage.transfer.transfer import TransferOptions, transfer
from paceline.storage.url import is_remote

_RESULT = re.compile(r"(?:[^/]+/){0,2}(?:throughput_\d+|accuracy(?:_\d+)?|ranksize|result)\.json")


def is_benchmark_result(key: str) -> bool:
    """The small files a benchmark is scored from; other outputs may be terabytes of checkpoints."""
    return _RESULT.fullmatch(key) is not None


def fetch_outputs(handle: JobHandle, target: Path, rule: FileFilter) -> Path:
    """Download each output to `target`/<its name>; outputs that already are there are only counted."""
    found = 0
    for name, where in handle.outputs.items():
        if not is_remote(where) and Path(where).absolute() == (target / name).absolute():
            files = (path for path in Path(where).rglob("*") if path.is_file())
            found += sum(rule(path.relative_to(where).as_posix()) for path in files)
            continue
        try:
            report = transfer(where, target / name, TransferOptions(file_filter=rule)).raise_failures()
        except UsageError:
            continue  # no such directory: reported below, for all outputs together
        found += report.moved + report.same
    if not found:
        places = ", ".join(handle.outputs.values())
        raise PacelineError(
            f"{handle.id}: no matching output found in {places}",
            hint=f"check that the script writes to --{' and --'.join(handle.outputs)}; logs: {handle.logs}",
        )
    return target
