"""Parsing of the environment variable MS_PROFILER_OPTIONS, which profiles an unchanged script.

    MS_PROFILER_OPTIONS='{"start": true, "output_path": "./data", "start_step": 2, "stop_step": 5}'

Keys are the Profiler's parameters and `start`; start_step, stop_step, ranks and backend are extensions. Without any of
these MindSpore profiles by itself, as documented; torch does not know the variable, so there Paceline always does it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.profiling.option_conflicts import resolve_conflicts
from paceline.profiling.option_parsing import NAMES, OLD_NAMES, parse_options, suggestion
from paceline.profiling.options import ProfilerOptions
from paceline.profiling.warning import collect_warnings, warn

VARIABLE = "MS_PROFILER_OPTIONS"
TAKEN_OVER = "PACELINE_PROFILER_OPTIONS"
"""Holds the options once Paceline has taken them over, so that MindSpore does not start a second profiler."""
_OWN_KEYS = ("start", "start_step", "stop_step", "ranks", "backend")
_UNSUPPORTED = {
    "schedule": "choose steps with start_step and stop_step",
    "on_trace_ready": "choose the directory with output_path",
    "start_profile": "recording begins with the import of the framework, or with start_step",
}


@dataclass(frozen=True)
class EnvironmentOptions:
    """The parsed variable; if `problem` is set, nothing is recorded."""

    options: ProfilerOptions = ProfilerOptions()  # noqa: RUF009  # frozen
    start_step: int | None = None
    stop_step: int | None = None
    ranks: tuple[int, ...] | None = None
    backend: str = "auto"
    problem: str = ""
    notes: tuple[str, ...] = ()
    """Corrected and ignored keys."""

    @property
    def mindspore_can_handle(self) -> bool:
        """Whether MindSpore's own handling of the variable is enough."""
        return self.start_step is None and self.stop_step is None and self.ranks is None


def read_options(text: str) -> EnvironmentOptions:
    """Never raises: a job must not fail because of a mistyped variable."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        return EnvironmentOptions(problem=f"is not valid JSON ({error}); nothing is recorded")
    if not isinstance(given, dict):
        return EnvironmentOptions(problem=f"contains a {type(given).__name__}, not an object; nothing is recorded")
    start = given.get("start", False)
    if start is not True:
        found = "is missing" if "start" not in given else f"is {json.dumps(start)}"
        return EnvironmentOptions(problem=f"'start' {found} and must be true (without quotes); nothing is recorded")
    with collect_warnings() as notes:
        read = _read(given)
    return EnvironmentOptions(*read, notes=tuple(notes))


def variable_for_mindspore(options: EnvironmentOptions) -> str:
    """The same request with the names MindSpore 2.10 understands."""
    known = {name: value for name, value in options.options.to_json().items() if name not in _UNSUPPORTED}
    return json.dumps({"start": True, **known})


def to_json(options: EnvironmentOptions) -> str:
    """The same request, with all reported mistakes corrected."""
    own = {name: getattr(options, name) for name in _OWN_KEYS if name != "start"}
    return json.dumps(
        {**json.loads(variable_for_mindspore(options)), **{k: v for k, v in own.items() if v is not None}}
    )


def _read(given: Mapping[str, Any]) -> tuple[ProfilerOptions, int | None, int | None, tuple[int, ...] | None, str]:
    options, unknown = parse_options({k: v for k, v in given.items() if k not in _OWN_KEYS and k not in _UNSUPPORTED})
    for name in unknown:
        warn(f"unknown key '{name}' was ignored{suggestion(name, (*_OWN_KEYS, *NAMES, *OLD_NAMES))}")
    for name in _UNSUPPORTED.keys() & given.keys():
        warn(f"key '{name}' was ignored: {_UNSUPPORTED[name]}")
    for name in OLD_NAMES.keys() & given.keys():
        warn(f"key '{name}' is now called '{OLD_NAMES[name]}' and was read as such")
    start, stop = (_step(name, given.get(name)) for name in ("start_step", "stop_step"))
    if start is not None and stop is not None and stop < start:
        warn(f"stop_step {stop} is before start_step {start}; both were ignored")
        start = stop = None
    return (
        resolve_conflicts(options, scheduled=start is not None),
        start,
        stop,
        _ranks(given.get("ranks")),
        _backend(given),
    )


def _step(name: str, value: object) -> int | None:
    if value is None or (type(value) is int and value >= 1):
        return value
    warn(f"{name} must be an integer of at least 1, but is {value!r}; ignored")
    return None


def _ranks(value: object) -> tuple[int, ...] | None:
    if value is None or (isinstance(value, list) and all(type(each) is int for each in value)):
        return None if value is None else tuple(value)
    warn(f"ranks must be a list of numbers, but is {value!r}; all ranks are recorded")
    return None


def _backend(given: Mapping[str, Any]) -> str:
    value = given.get("backend", "auto")
    if value in ("auto", "mindspore", "torch"):
        return str(value)
    warn(f"backend must be auto, mindspore or torch, but is {value!r}; auto is used")
    return "auto"
