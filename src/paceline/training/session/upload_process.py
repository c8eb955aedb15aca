"""Run the upload worker as a child process: start it, read its results, kill it when time is up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.training.session.upload_messages import TransferResult, TransferTask, UploadRequest

_PACKAGES = Path(__file__).parents[3]


@dataclass
class UploadResult:
    """Results of one upload worker."""

    results: list[TransferResult] = field(default_factory=list)
    unfinished: list[TransferTask] = field(default_factory=list)
    """Tasks that were not finished when it exited."""
    reason: str = ""
    """Why it exited early."""

    @property
    def complete(self) -> bool:
        return not self.unfinished and not any(each.failures for each in self.results)


class UploadProcess:
    """Runs one worker at a time; `stop` kills it from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, tasks: Sequence[TransferTask], *, patience: float, seconds: float) -> UploadResult:
        result = UploadResult(unfinished=list(tasks))
        with self._lock:
            if self._stopped:
                result.reason = "stopped"
                return result
            process = self._process = _start()
        timer = threading.Timer(max(seconds, 0.0), _kill, [process])
        timer.daemon = True
        timer.start()
        began = time.monotonic()
        try:
            self._exchange(process, UploadRequest(tuple(tasks), patience), result)
            _kill(process)
            process.wait()
            if result.unfinished:
                out_of_time = time.monotonic() - began >= seconds
                result.reason = f"not finished within {seconds:.0f} s" if out_of_time else _last_error_line(process)
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
            _close_pipes(process)
            with self._lock:
                self._process = None
        return result

    def stop(self) -> None:
        """Kill the worker now; the next run resumes large files."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                _kill(self._process)

    def reset(self) -> None:
        with self._lock:
            self._stopped = False

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], request: UploadRequest, result: UploadResult) -> None:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return  # it exited immediately: stderr contains the reason
        for line in process.stdout:
            if not line.endswith(b"\n"):
                return  # killed while writing a line: that task is unfinished
            result.results.append(msgspec.json.decode(line, type=TransferResult))
            result.unfinished.pop(0)


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "paceline.training.session.upload_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # a signal to the process group must not kill the upload
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)


def _last_error_line(process: subprocess.Popen[bytes]) -> str:
    lines = process.stderr.read().decode(errors="replace").strip().splitlines() if process.stderr else []
    return lines[-1] if lines else "the upload worker was killed"


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        try:
            if pipe:
                pipe.close()
        except BrokenPipeError:
            pass  # the worker is gone and does not read the rest
