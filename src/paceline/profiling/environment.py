"""MS_PROFILER_OPTIONS: profiling a script that does not know of it, from the import of its framework to its end.

    MS_PROFILER_OPTIONS='{"start": true, "output_path": "./data", "start_step": 2, "stop_step": 5}'

Keys are the Profiler's parameters and `start`; ours are start_step, stop_step, ranks and backend. Without steps and ranks
MindSpore does it itself, as documented; torch knows nothing of the variable, so there it is always us.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.profiling.choosing import NAMES, OLD_NAMES, options_from, suggestion
from paceline.profiling.compatibility import compatible
from paceline.profiling.options import Options
from paceline.profiling.warning import collected, warn

VARIABLE = "MS_PROFILER_OPTIONS"
TAKEN = "PACELINE_PROFILER_OPTIONS"
"""Where the options stand once we have taken them over, so that MindSpore does not start a second profiler."""
_OURS = ("start", "start_step", "stop_step", "ranks", "backend")
_NOT_HERE = {
    "schedule": "steps are chosen with start_step and stop_step here",
    "on_trace_ready": "the place is chosen with output_path here",
    "start_profile": "recording begins with the framework's import, or with start_step",
}
_LAUNCHERS = (
    "torchrun",
    "msrun",
    "accelerate",
    "deepspeed",
    "mpirun",
    "torch.distributed.run",
    "torch.distributed.launch",
)

_OUR_LAUNCHERS = (["run-profiled"], ["launch"], ["profile"])


@dataclass(frozen=True)
class EnvironmentOptions:
    """What the variable asks for; nothing, where `problem` says why."""

    options: Options = Options()  # noqa: RUF009  # frozen
    start_step: int | None = None
    stop_step: int | None = None
    ranks: tuple[int, ...] | None = None
    backend: str = "auto"
    problem: str = ""
    notes: tuple[str, ...] = ()
    """What was corrected or passed over."""

    @property
    def framework_can(self) -> bool:
        """Whether MindSpore's own handling of the variable does all that is asked."""
        return self.start_step is None and self.stop_step is None and self.ranks is None


def read_options(text: str) -> EnvironmentOptions:
    """Never fails: a job does not die of a mistyped variable."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        return EnvironmentOptions(problem=f"is not valid JSON ({error}); nothing is recorded")
    if not isinstance(given, dict):
        return EnvironmentOptions(problem=f"holds a {type(given).__name__}, not an object; nothing is recorded")
    start = given.get("start", False)
    if start is not True:
        said = "is missing" if "start" not in given else f"is {json.dumps(start)}"
        return EnvironmentOptions(problem=f"'start' {said} and must be true (without quotes); nothing is recorded")
    with collected() as notes:
        read = _read(given)
    return EnvironmentOptions(*read, notes=tuple(notes))


def variable_for_mindspore(asked: EnvironmentOptions) -> str:
    """The same request in the spelling MindSpore 2.10 understands."""
    known = {name: value for name, value in asked.options.plain().items() if name not in _NOT_HERE}
    return json.dumps({"start": True, **known})


def spelled(asked: EnvironmentOptions) -> str:
    """The same request, with everything corrected that has been explained."""
    ours = {name: getattr(asked, name) for name in _OURS if name != "start"}
    return json.dumps({**json.loads(variable_for_mindspore(asked)), **{k: v for k, v in ours.items() if v is not None}})


def begin() -> None:
    """Once per process: explain the variable, and wait for the framework to be imported."""
    text = os.environ.get(TAKEN) or os.environ.get(VARIABLE)
    if not text or _begun or not _is_training():
        return
    _begun.append(True)
    asked = read_options(text)
    if asked.problem:
        _say(f"{VARIABLE} {asked.problem}")
        return
    for note in asked.notes:
        _say(f"{VARIABLE}: {note}")
    if not asked.framework_can and "mindspore" not in sys.modules:
        os.environ[TAKEN] = os.environ.pop(VARIABLE, text)
    elif VARIABLE in os.environ:
        os.environ[VARIABLE] = variable_for_mindspore(asked)
    from paceline.profiling.unasked import profile_when_imported

    profile_when_imported(asked)


_begun: list[bool] = []


def _read(given: Mapping[str, Any]) -> tuple[Options, int | None, int | None, tuple[int, ...] | None, str]:
    options, unknown = options_from({k: v for k, v in given.items() if k not in _OURS and k not in _NOT_HERE})
    for name in unknown:
        warn(f"key '{name}' is not known and was passed over{suggestion(name, (*_OURS, *NAMES, *OLD_NAMES))}")
    for name in _NOT_HERE.keys() & given.keys():
        warn(f"key '{name}' was passed over: {_NOT_HERE[name]}")
    for name in OLD_NAMES.keys() & given.keys():
        warn(f"key '{name}' is now called '{OLD_NAMES[name]}'; read as that")
    start, stop = (_step(name, given.get(name)) for name in ("start_step", "stop_step"))
    if start is not None and stop is not None and stop < start:
        warn(f"stop_step {stop} lies before start_step {start}; both were passed over")
        start = stop = None
    return compatible(options, scheduled=start is not None), start, stop, _ranks(given.get("ranks")), _backend(given)


def _step(name: str, value: object) -> int | None:
    if value is None or (type(value) is int and value >= 1):
        return value
    warn(f"{name} must be a whole number from 1, but is {value!r}; passed over")
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


def _is_training() -> bool:
    """Launchers load torch too, but train nothing; workers of a data loader do not train either."""
    words = sys.orig_argv[1:]
    launches = any(Path(word).name in _LAUNCHERS for word in words[:4])
    ours = any(
        Path(word).name == "paceline" and words[at + 1 : at + 2] in _OUR_LAUNCHERS for at, word in enumerate(words)
    )
    return not launches and not ours and not any("multiprocessing" in word for word in words)


def _say(text: str) -> None:
    print(f"[paceline] {text}", file=sys.stderr, flush=True)
