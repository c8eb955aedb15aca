"""Upload a job's code, packages and ma-pre-start.sh to its bucket, verified before the job is started."""

from __future__ import annotations

from pathlib import Path

from paceline.core.atomic_write import atomic_write_text
from paceline.jobs.code_upload import copy_code, stale_files
from paceline.jobs.description import JobDescription
from paceline.jobs.modelarts.agent_wheels import agent_files
from paceline.jobs.modelarts.pre_start import pre_start_files, pre_start_script, run_directory, script_key
from paceline.storage.transfer.transfer import transfer
from paceline.storage.transfer.transfer_report import OnProgress

_SHOWN = 5
_LARGE = 50_000_000
"""ModelArts recommends code directories up to 50 MB: every node downloads them before it starts."""


def upload_code(job: JobDescription, scratch: Path, progress: OnProgress | None) -> list[str]:
    """Raises when any file was not uploaded; returns warnings."""
    base = job.code_url.rstrip("/")
    agent, notes = agent_files(job, scratch)
    extra = pre_start_files(job) | {f"{run_directory(job)}/{name}": file for name, file in agent.items()}
    text, key = pre_start_script(job), script_key(job)
    report = copy_code(job, base, progress, without=frozenset({key, *extra}))
    present = set(report.present)
    for where, file in extra.items():
        transfer(file, f"{base}/{where}").raise_failures()
        present.add(where)
    if text is not None:
        atomic_write_text(scratch / key, text)
        transfer(scratch / key, f"{base}/{key}").raise_failures()
        present.add(key)
    return [*notes, *_size(report.moved_bytes + report.same_bytes), *_stale(base, frozenset(present))]


def _size(size: int) -> list[str]:
    return [f"the code is {size / 1e6:,.0f} MB; ModelArts recommends at most 50 MB"] if size > _LARGE else []


def _stale(url: str, present: frozenset[str]) -> list[str]:
    stale = stale_files(url, present)
    if not stale:
        return []
    more = f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else ""
    return [
        f"{url} has files that are not part of this code, and the job will see them: "
        f"{', '.join(stale[:_SHOWN])}{more} (paceline sync CODE_DIR {url} --prune removes them)"
    ]
