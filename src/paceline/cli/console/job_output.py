"""Print jobs on a terminal: logs by worker, the list of jobs, status and outcome."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

if TYPE_CHECKING:
    from paceline.jobs import JobHandle, JobOutcome, JobStatus, LogPiece
    from paceline.jobs.job_registry import JobRecord


_FRESH = 30.0
"""Seconds for which a status counts as live."""


class LogPrinter:
    """Prints complete lines, prefixed with the worker where there are several."""

    def __init__(self, handle: JobHandle, *, only: int | None = None, stream: TextIO | None = None) -> None:
        self._named = handle.job.nodes > 1 and only is None
        self._only, self._stream = only, stream or sys.stdout
        self._rest: dict[int, str] = {}

    def __call__(self, piece: LogPiece) -> None:
        if self._only is not None and piece.worker != self._only:
            return
        *lines, self._rest[piece.worker] = (self._rest.get(piece.worker, "") + piece.text).split("\n")
        for line in lines:
            self._line(piece.worker, line)

    def end(self) -> None:
        for worker, rest in self._rest.items():
            if rest:
                self._line(worker, rest)
        self._rest.clear()

    def _line(self, worker: int, line: str) -> None:
        print(f"[worker {worker}] {line}" if self._named else line, file=self._stream, flush=True)


def table(records: Sequence[JobRecord]) -> str:
    rows = [("JOB", "BACKEND", "PHASE", "STARTED", "TOOK")]
    for record in records:
        handle, status = record.handle, record.status
        phase = (status.phase.value if status else "submitted") + _age(record)
        rows.append((handle.id, handle.backend, phase, _when(handle.submitted), _took(status)))
    return aligned(rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell; the first row is the head."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def phase_text(status: JobStatus) -> str:
    """Our name of the state, and the backend's if it says more."""
    phase = status.phase.value
    return phase if status.detail.lower() in ("", phase) else f"{phase} ({status.detail})"


def status_text(handle: JobHandle, status: JobStatus) -> str:
    lines = [
        f"{handle.id}: {phase_text(status)}",
        f"  {handle.backend:<10} {handle.remote_id}",
        f"  started    {_when(handle.submitted)}" + (f", took {_took(status)}" if status.ended else ""),
        *(f"  {each.name:<10} exit code {each.exit_code}" for each in status.workers if each.exit_code is not None),
        *([f"  reason     {status.reason}"] if status.reason else []),
        f"  logs       {handle.logs}",
        *(f"  {name:<10} {where}" for name, where in handle.outputs.items()),
    ]
    return "\n".join(lines)


def outcome_text(outcome: JobOutcome, fetched: Path | None) -> str:
    took = _took(outcome.status)
    lines = [f"{outcome.id}: {outcome.status.phase.value}" + (f" after {took}" if took else "")]
    lines += [f"  {name:<10} {where}" for name, where in outcome.outputs.items()]
    lines += [f"  results    {fetched}"] if fetched else []
    lines += [f"  note       {warning}" for warning in outcome.warnings]
    return "\n".join(lines)


def print_note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _age(record: JobRecord) -> str:
    """How old a status is that may have changed: the backend did not answer."""
    ended = record.status is not None and record.status.finished
    if ended or (record.checked is not None and time.time() - record.checked < _FRESH):
        return ""
    if record.checked is None:
        return " (last known)"
    minutes = round((time.time() - record.checked) / 60)
    return f" ({minutes // 60} h {minutes % 60} min ago)" if minutes >= 60 else f" ({minutes} min ago)"


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _took(status: JobStatus | None) -> str:
    if status is None or not status.started or not status.ended:
        return ""
    seconds = round(status.ended - status.started)
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}"
