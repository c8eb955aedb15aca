"""Copy a job's code to a directory or bucket, without caches and repositories; list stale files there."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.jobs.description import JobDescription
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import TransferOptions, transfer, transfer_between
from paceline.storage.transfer.transfer_report import OnProgress, TransferReport
from paceline.storage.url import is_remote

_NOT_CODE = re.compile(
    r"(?:.*/)?(?:\.git|__pycache__|\.venv|\.idea|\.vscode|node_modules|paceline-jobs|paceline-bench)/.*|.*\.pyc"
)


def is_code(key: str) -> bool:
    return not _NOT_CODE.fullmatch(key)


def copy_code(
    job: JobDescription,
    target: Path | str,
    progress: OnProgress | None = None,
    *,
    without: frozenset[str] = frozenset(),
) -> TransferReport:
    """Copy code_dir (except `without`) to a directory or bucket; raises when any file was not copied."""
    options = TransferOptions(file_filter=lambda key: is_code(key) and key not in without, progress=progress)
    if _is_excluded_below(Path(job.code_dir), target):
        # The job's directory lies below its code_dir, and is not copied into itself.
        return transfer_between(open_store(job.code_dir), open_store(target), options).raise_failures()
    return transfer(job.code_dir, target, options).raise_failures()


def _is_excluded_below(code: Path, target: Path | str) -> bool:
    place = Path(target).absolute()
    return (
        not is_remote(target) and place.is_relative_to(code) and not is_code(f"{place.relative_to(code).as_posix()}/")
    )


def stale_files(url: str, present: frozenset[str]) -> list[str]:
    """Files at the URL that are not part of this upload: ModelArts would still give them to the job."""
    store = open_store(url)
    try:
        return sorted(item.key for item in store.list_files() if item.key not in present and item.size)
    finally:
        store.close()
