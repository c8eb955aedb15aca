"""Start and stop one rank as a process with its own process group and log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from paceline.core.errors import UsageError
from paceline.training.launcher import orphan_reaper

LOG = "output.log"


class RankProcess:
    """Writes directly to its log, so that a dead or slow launcher never blocks it. Logs of earlier starts are kept."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        self.code: int | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.first_byte = output.tell()
            try:
                self._process = subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"could not start {command[0]}: {error.strerror}") from error
        self.group = self._process.pid

    def ended(self) -> bool:
        """Check without waiting. Kills remaining children while the process id is still reserved."""
        if self.code is not None:
            return True
        if os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self.send(signal.SIGKILL)
        code = self._process.wait()
        self.code = 128 - code if code < 0 else code
        return True

    def send(self, number: int) -> None:
        if self.code is None:
            try:
                os.killpg(self.group, number)
            except (ProcessLookupError, PermissionError):
                pass  # it exited or changed its user (setuid)

    @property
    def exit_reason(self) -> str:
        assert self.code is not None
        if self.code <= 128:
            return f"exit code {self.code}"
        name = _signal_name(self.code - 128)
        return f"killed by {name}" + (" (out of memory? see dmesg)" if name == "SIGKILL" else "")

    @property
    def last_output_ns(self) -> int:
        """Time of its last output, in nanoseconds."""
        try:
            return self.log.stat().st_mtime_ns
        except FileNotFoundError:
            return 0  # the log was removed

    def last_lines(self, count: int = 20) -> list[str]:
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self.first_byte, size - 64 * 1024))
                return file.read().decode(errors="replace").splitlines()[-count:]
        except FileNotFoundError:
            return ["(the log was removed)"]


class OrphanReaper:
    """A child process that stops the ranks if this process is killed (see orphan_reaper.py)."""

    def __init__(self, grace: float) -> None:
        command = [sys.executable, "-I", orphan_reaper.__file__, str(grace)]
        # Not our output: a reader that waits for its end would wait for the reaper too.
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, text=True
        )

    def __enter__(self) -> OrphanReaper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def watch(self, rank: RankProcess) -> None:
        self._send(f"+{rank.group}\n")

    def forget(self, rank: RankProcess) -> None:
        self._send(f"-{rank.group}\n")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed; the launcher itself still stops its ranks


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
