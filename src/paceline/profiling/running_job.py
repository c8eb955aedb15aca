"""A running job seen from outside: the current step of each rank, and requests to record the next steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError, UsageError
from paceline.profiling.dynamic_config import DEFAULTS, FILE_NAME, RecordRequest, read_request
from paceline.profiling.output_files import write_json
from paceline.profiling.step_sync import DIRECTORY, RankStatus, StepSync, read_statuses

SILENT_SECONDS = 60.0
_MAX_DEPTH = 4


@dataclass(frozen=True)
class RunningJob:
    """Its configuration file, and the directory with the status files of its ranks."""

    config: Path
    directory: Path

    def states(self) -> list[RankStatus]:
        return StepSync(self.directory).active_ranks()


def find_job(path: Path) -> RunningJob:
    """The job whose monitor watches this directory, or one below it."""
    if not path.exists():
        raise UsageError(f"{path} not found", hint="--job is the cfg_path of the job's DynamicProfilerMonitor")
    configs = list(_configs(path if path.is_dir() else path.parent))
    running = [
        RunningJob(config, directory)
        for config in configs
        for directory in sorted((config.parent / DIRECTORY).glob("*"))
        if _is_running(directory) and (path.parent.name != DIRECTORY or directory == path)
    ]
    if len(running) == 1:
        return running[0]
    if running:
        names = "\n          ".join(str(job.directory) for job in running)
        raise UsageError(f"{len(running)} running jobs use {path}", hint=f"choose one:\n          {names}")
    known = f"{FILE_NAME} exists, but no running job watches it" if configs else f"no {FILE_NAME} found"
    raise PacelineError(
        f"{path}: {known}",
        hint="the training script needs paceline.profiling.DynamicProfilerMonitor(cfg_path=…); see docs/profiling.md",
    )


def request_recording(
    job: RunningJob, steps: int, *, ranks: list[int], fields: Mapping[str, Any], margin: float = 1.0
) -> RecordRequest:
    """Rewrite the configuration for the next steps that no rank can miss; its other fields stay."""
    states = job.states()
    if not states:
        raise PacelineError(f"{job.config.parent}: the job has ended", hint="what was recorded until then is kept")
    unknown = sorted(set(ranks) - {state.rank for state in states})
    if unknown:
        raise UsageError(
            f"ranks {unknown} are not in this job", hint=f"it has {_format_ranks([s.rank for s in states])}"
        )
    start = _first_step(states, margin)
    requested = {**_read_config(job.config), "start_step": start, "stop_step": start + steps - 1, **fields}
    requested["ranks"] = sorted(ranks)
    write_json(job.config, requested)
    return read_request(job.config)[0]


@dataclass(frozen=True)
class StepProgress:
    """Which ranks have recorded the requested steps."""

    request: RecordRequest
    states: list[RankStatus]

    @property
    def requested(self) -> list[RankStatus]:
        """Ranks that are to record, without those that ended before they saw the request."""
        mine = (state for state in self.states if self.request.includes(state.rank))
        return [state for state in mine if not state.ended or state.seen == self.request.version]

    @property
    def recorded(self) -> list[RankStatus]:
        return [state for state in self.requested if state.seen == self.request.version and state.state == "recorded"]

    @property
    def missed(self) -> list[RankStatus]:
        """Including ranks whose training ended first."""
        seen = (state for state in self.requested if state.seen == self.request.version)
        return [state for state in seen if state.state == "missed" or (state.ended and state.state != "recorded")]

    @property
    def is_complete(self) -> bool:
        return bool(self.requested) and len(self.recorded) + len(self.missed) == len(self.requested)


def follow_request(job: RunningJob, request: RecordRequest) -> Iterator[StepProgress]:
    """Poll until all ranks have recorded or missed the steps; raises if the job ends first."""
    while True:
        states = job.states()
        progress = StepProgress(request, read_statuses(job.directory))
        yield progress
        if progress.is_complete:
            return
        if not states or all(time.time() - state.mtime > SILENT_SECONDS for state in states):
            raise PacelineError("the job has ended or no longer responds", hint="what was recorded until then is kept")
        time.sleep(min(1.0, max(0.1, states[0].interval / 4)))


def _first_step(states: list[RankStatus], margin: float) -> int:
    """Far enough ahead that every rank polls the file twice before it gets there."""
    interval = max(state.interval for state in states)
    fastest = min((state.step_seconds for state in states if state.step_seconds > 0), default=interval)
    ahead = math.ceil(margin * 3 * interval / fastest) + 2
    return max(state.step for state in states) + ahead


def _read_config(config: Path) -> dict[str, Any]:
    try:
        content = json.loads(config.read_bytes())
    except FileNotFoundError:
        return dict(DEFAULTS)
    except ValueError as error:
        raise PacelineError(
            f"{config} is not valid JSON ({error})", hint="fix or remove it; it is not overwritten"
        ) from error
    if not isinstance(content, dict):
        raise PacelineError(f"{config} does not contain a JSON object", hint="fix or remove it; it is not overwritten")
    return content


def _configs(path: Path) -> Iterator[Path]:
    if path.parent.name == DIRECTORY:
        path = path.parent.parent
    for depth in range(_MAX_DEPTH):
        found = sorted(path.glob("*/" * depth + FILE_NAME))
        if found:
            yield from found
            return


def _is_running(directory: Path) -> bool:
    return any(time.time() - state.mtime < SILENT_SECONDS for state in StepSync(directory).active_ranks())


def _format_ranks(ranks: list[int]) -> str:
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
