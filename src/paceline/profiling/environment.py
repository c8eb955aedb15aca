"""Start profiling from the environment variable MS_PROFILER_OPTIONS, once per training process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paceline.profiling.autorecord import RECORD_VARIABLE, record_on_import
from paceline.profiling.environment_options import TAKEN_OVER, VARIABLE, read_options, variable_for_mindspore
from paceline.profiling.full_disk_output import survive_a_full_disk

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


def start_from_environment() -> None:
    """Once per process: report mistakes in the variable, and wait for the framework to be imported."""
    survive_a_full_disk()
    _start_recording()
    text = os.environ.get(TAKEN_OVER) or os.environ.get(VARIABLE)
    if not text or _started or not _is_training():
        return
    _started.append(True)
    options = read_options(text)
    if options.problem:
        _print(f"{VARIABLE} {options.problem}")
        return
    for note in options.notes:
        _print(f"{VARIABLE}: {note}")
    if not options.mindspore_can_handle and "mindspore" not in sys.modules:
        os.environ[TAKEN_OVER] = os.environ.pop(VARIABLE, text)
    elif VARIABLE in os.environ:
        os.environ[VARIABLE] = variable_for_mindspore(options)
    from paceline.profiling.autoprofile import profile_on_import

    profile_on_import(options)


def _start_recording() -> None:
    directory = os.environ.get(RECORD_VARIABLE)
    if directory and not _recording and _is_training():
        _recording.append(True)
        record_on_import(directory)


_started: list[bool] = []
_recording: list[bool] = []


def _is_training() -> bool:
    """False in launchers, which import torch but do not train, and in workers of a data loader."""
    words = _command_line()[1:]
    launches = any(Path(word).name in _LAUNCHERS for word in words[:4])
    paceline_launches = any(
        Path(word).name == "paceline" and words[at + 1 : at + 2] in _OUR_LAUNCHERS for at, word in enumerate(words)
    )
    return not launches and not paceline_launches and not any("multiprocessing" in word for word in words)


def _command_line() -> list[str]:
    """The command line of this process, with the options of Python itself."""
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    try:
        return Path("/proc/self/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [sys.executable, *sys.argv]  # not Linux


def _print(text: str) -> None:
    print(f"[paceline] {text}", file=sys.stderr, flush=True)
