"""A running job seen from outside: which steps its ranks are at, and asking them to record the next ones."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError, UsageError
from paceline.profiling.agreement import DIRECTORY, Agreement, RankState, read_states
from paceline.profiling.dynamic_config import DEFAULTS, FILE_NAME, Request, read_request
from paceline.profiling.output import write_json

SILENT_SECONDS = 60.0
_DEEPEST = 4


@dataclass(frozen=True)
class Job:
    """Its configuration directory, and where its ranks say how far they are."""

    config: Path
    directory: Path

    def states(self) -> list[RankState]:
        return Agreement(self.directory).present()


def find_job(place: Path) -> Job:
    """The job whose monitor watches this directory, or one below it."""
    if not place.exists():
        raise UsageError(f"{place} does not exist", hint="--job is the cfg_path of the job's DynamicProfilerMonitor")
    configs = list(_configs(place if place.is_dir() else place.parent))
    running = [
        Job(config, directory)
        for config in configs
        for directory in sorted((config.parent / DIRECTORY).glob("*"))
        if _is_running(directory) and (place.parent.name != DIRECTORY or directory == place)
    ]
    if len(running) == 1:
        return running[0]
    if running:
        names = "\n          ".join(str(job.directory) for job in running)
        raise UsageError(
            f"{len(running)} running jobs are watched for in {place}", hint=f"name one:\n          {names}"
        )
    known = f"no job that watches it is running ({FILE_NAME} is there)" if configs else f"there is no {FILE_NAME}"
    raise PacelineError(
        f"{place}: {known}",
        hint="the training script needs paceline.profiling.DynamicProfilerMonitor(cfg_path=…); see docs/profiling.md",
    )


def ask(job: Job, steps: int, *, ranks: list[int], fields: Mapping[str, Any], margin: float = 1.0) -> Request:
    """Rewrite the configuration for the next steps all ranks can still prepare for; everything else in it stays."""
    states = job.states()
    if not states:
        raise PacelineError(f"{job.config.parent}: the job has ended", hint="what was recorded until then is kept")
    unknown = sorted(set(ranks) - {state.rank for state in states})
    if unknown:
        raise UsageError(f"ranks {unknown} are not in this job", hint=f"it has {_spans([s.rank for s in states])}")
    start = _first_step(states, margin)
    asked = {**_content(job.config), "start_step": start, "stop_step": start + steps - 1, **fields}
    asked["ranks"] = sorted(ranks)
    write_json(job.config, asked)
    return read_request(job.config)[0]


@dataclass(frozen=True)
class Progress:
    """How far a request has come."""

    request: Request
    states: list[RankState]

    @property
    def asked(self) -> list[RankState]:
        """Ranks that are to record; those that ended before they saw the request no longer count."""
        mine = (state for state in self.states if self.request.wants(state.rank))
        return [state for state in mine if not state.ended or state.seen == self.request.version]

    @property
    def recorded(self) -> list[RankState]:
        return [state for state in self.asked if state.seen == self.request.version and state.state == "recorded"]

    @property
    def missed(self) -> list[RankState]:
        """Also where training ended first."""
        seen = (state for state in self.asked if state.seen == self.request.version)
        return [state for state in seen if state.state == "missed" or (state.ended and state.state != "recorded")]

    @property
    def over(self) -> bool:
        return bool(self.asked) and len(self.recorded) + len(self.missed) == len(self.asked)


def follow(job: Job, request: Request) -> Iterator[Progress]:
    """Look again until all ranks have recorded or missed it; ends early when the job does."""
    while True:
        states = job.states()
        progress = Progress(request, read_states(job.directory))
        yield progress
        if progress.over:
            return
        if not states or all(time.time() - state.mtime > SILENT_SECONDS for state in states):
            raise PacelineError(
                "the job has ended or says nothing any more", hint="what was recorded until then is kept"
            )
        time.sleep(min(1.0, max(0.1, states[0].interval / 4)))


def _first_step(states: list[RankState], margin: float) -> int:
    """So far ahead that every rank looks at the file twice before it gets there."""
    interval = max(state.interval for state in states)
    quickest = min((state.step_seconds for state in states if state.step_seconds > 0), default=interval)
    ahead = math.ceil(margin * 3 * interval / quickest) + 2
    return max(state.step for state in states) + ahead


def _content(config: Path) -> dict[str, Any]:
    try:
        content = json.loads(config.read_bytes())
    except FileNotFoundError:
        return dict(DEFAULTS)
    except ValueError as error:
        raise PacelineError(
            f"{config} is not valid JSON ({error})", hint="mend or remove it; it is not overwritten"
        ) from error
    if not isinstance(content, dict):
        raise PacelineError(f"{config} holds no object of fields", hint="mend or remove it; it is not overwritten")
    return content


def _configs(place: Path) -> Iterator[Path]:
    if place.parent.name == DIRECTORY:
        place = place.parent.parent
    for depth in range(_DEEPEST):
        found = sorted(place.glob("*/" * depth + FILE_NAME))
        if found:
            yield from found
            return


def _is_running(directory: Path) -> bool:
    return any(time.time() - state.mtime < SILENT_SECONDS for state in Agreement(directory).present())


def _spans(ranks: list[int]) -> str:
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
