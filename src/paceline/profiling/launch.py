"""Run a command whose Python processes profile themselves: `paceline run-profiled`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from paceline.core.errors import PacelineError
from paceline.core.scratch_directory import scratch_directory
from paceline.profiling.environment_options import TAKEN_OVER, VARIABLE

_PACKAGE = Path(__file__).parents[1]
_STARTUP = Path(__file__).with_name("startup") / "sitecustomize.py"


def run(command: Sequence[str], options: str) -> int:
    """Run it with `options` (JSON); returns its exit code, 128 + n if signal n ended it."""
    with scratch_directory() as directory:
        environment = _environment(directory, options)
        try:
            child = subprocess.Popen(list(command), env=environment)
        except OSError as error:
            raise PacelineError(f"could not start {command[0]}: {error.strerror}") from error
        with _forward_signals_to(child):
            code = child.wait()
    return 128 - code if code < 0 else code


def _environment(directory: Path, options: str) -> dict[str, str]:
    """PYTHONPATH with our sitecustomize and this Paceline, also for a Python of another environment."""
    environment = {name: value for name, value in os.environ.items() if name != TAKEN_OVER}
    return {**environment, VARIABLE: options, **startup_path(directory)}


def startup_path(directory: Path) -> dict[str, str]:
    """PYTHONPATH with our sitecustomize in `directory`."""
    shutil.copy(_STARTUP, directory / "sitecustomize.py")
    (directory / "paceline").symlink_to(_PACKAGE)
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{directory}{os.pathsep}{path}" if path else str(directory)}


@contextmanager
def _forward_signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward signals; Ctrl-C reaches the child by itself."""

    def forward(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGHUP)}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
