"""Starting a command whose Python processes profile themselves: `paceline run-profiled`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from paceline.errors import PacelineError
from paceline.profiling.environment import TAKEN, VARIABLE

_PACKAGE = Path(__file__).parents[1]
_STARTUP = Path(__file__).with_name("startup") / "sitecustomize.py"


def run(command: Sequence[str], options: str) -> int:
    """Run it with `options` (JSON) in force; its exit code, 128 + n when signal n ended it."""
    with tempfile.TemporaryDirectory(prefix="paceline-profiled-") as place:
        environment = _environment(Path(place), options)
        try:
            child = subprocess.Popen(list(command), env=environment)
        except OSError as error:
            raise PacelineError(f"{command[0]} cannot be started: {error.strerror}") from error
        with _passing_signals_to(child):
            code = child.wait()
    return 128 - code if code < 0 else code


def _environment(place: Path, options: str) -> dict[str, str]:
    """Python runs our sitecustomize first and finds this very Paceline, whichever environment it belongs to."""
    shutil.copy(_STARTUP, place / "sitecustomize.py")
    (place / "paceline").symlink_to(_PACKAGE)
    found = os.environ.get("PYTHONPATH")
    without = {name: value for name, value in os.environ.items() if name != TAKEN}
    return {**without, VARIABLE: options, "PYTHONPATH": f"{place}{os.pathsep}{found}" if found else str(place)}


@contextmanager
def _passing_signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the child by itself; what is sent to us alone is passed on."""

    def passed_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, passed_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
