"""The code of a job into its bucket: all of it verified before the job is started."""

from __future__ import annotations

from pathlib import Path

from paceline.jobs.code import copy_code, stale_files
from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts.pre_start import packages, script, script_key
from paceline.storage.report import OnProgress
from paceline.storage.transfer import transfer
from paceline.whole import write_whole

_SHOWN = 5
_LARGE = 50_000_000
"""ModelArts asks for code directories up to 50 MB: every node downloads it before it starts."""


def upload_code(job: JobDescription, scratch: Path, progress: OnProgress | None) -> list[str]:
    """Code, packages and ma-pre-start.sh; raises when anything did not arrive. What is odd is returned."""
    base = job.code_url.rstrip("/")
    extra = packages(job)
    text, key = script(job), script_key(job)
    report = copy_code(job, base, progress, without=frozenset({key, *extra}))
    present = set(report.present)
    for where, file in extra.items():
        transfer(file, f"{base}/{where}").raise_failures()
        present.add(where)
    if text is not None:
        write_whole(scratch / key, text)
        transfer(scratch / key, f"{base}/{key}").raise_failures()
        present.add(key)
    return [*_size(report.moved_bytes + report.same_bytes), *_stale(base, frozenset(present))]


def _size(size: int) -> list[str]:
    return [f"the code is {size / 1e6:,.0f} MB; ModelArts recommends at most 50 MB"] if size > _LARGE else []


def _stale(url: str, present: frozenset[str]) -> list[str]:
    stale = stale_files(url, present)
    if not stale:
        return []
    more = f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else ""
    return [
        f"{url} holds files that are not part of this code, and the job gets them too: "
        f"{', '.join(stale[:_SHOWN])}{more} (paceline sync CODE_DIR {url} --prune removes them)"
    ]
