"""A job's code on its way: without caches and repositories, verified; what is stale there is said."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.jobs.description import JobDescription
from paceline.storage.location import is_remote
from paceline.storage.opening import open_store
from paceline.storage.report import OnProgress, Report
from paceline.storage.transfer import Options, transfer, transfer_between

_LEFT_BEHIND = re.compile(
    r"(?:.*/)?(?:\.git|__pycache__|\.venv|\.idea|\.vscode|node_modules|paceline-jobs|paceline-bench)/.*|.*\.pyc"
)


def is_code(key: str) -> bool:
    return not _LEFT_BEHIND.fullmatch(key)


def copy_code(
    job: JobDescription,
    target: Path | str,
    progress: OnProgress | None = None,
    *,
    without: frozenset[str] = frozenset(),
) -> Report:
    """All of code_dir (but `without`) to a directory or bucket; raises when anything did not arrive."""
    options = Options(rule=lambda key: is_code(key) and key not in without, progress=progress)
    if _is_left_behind(Path(job.code_dir), target):
        # A job's own directory below its code is no part of the code: nothing is copied into itself.
        return transfer_between(open_store(job.code_dir), open_store(target), options).raise_failures()
    return transfer(job.code_dir, target, options).raise_failures()


def _is_left_behind(code: Path, target: Path | str) -> bool:
    place = Path(target).absolute()
    return (
        not is_remote(target) and place.is_relative_to(code) and not is_code(f"{place.relative_to(code).as_posix()}/")
    )


def stale_files(url: str, present: frozenset[str]) -> list[str]:
    """What lies at the URL and is not part of this upload: ModelArts would still hand it to the job."""
    store = open_store(url)
    try:
        return sorted(item.key for item in store.items() if item.key not in present and item.size)
    finally:
        store.close()
