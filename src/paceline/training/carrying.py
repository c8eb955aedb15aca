"""The training's side of a courier: starts it, reads what it tells, ends it when time is up."""

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

from paceline.training.courier import Carried, Job, Move

_PACKAGES = Path(__file__).parents[2]


@dataclass
class Trip:
    """What came back from one courier."""

    carried: list[Carried] = field(default_factory=list)
    open_moves: list[Move] = field(default_factory=list)
    """Not finished when it ended."""
    complaint: str = ""
    """Why it ended early."""

    @property
    def complete(self) -> bool:
        return not self.open_moves and not any(each.troubles for each in self.carried)


class Courier:
    """One at a time; `stop` ends it from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, moves: Sequence[Move], *, patience: float, seconds: float) -> Trip:
        trip = Trip(open_moves=list(moves))
        with self._lock:
            if self._stopped:
                trip.complaint = "stopped"
                return trip
            process = self._process = _start()
        watch = threading.Timer(max(seconds, 0.0), _kill, [process])
        watch.daemon = True
        watch.start()
        began = time.monotonic()
        try:
            self._talk(process, Job(tuple(moves), patience), trip)
            _kill(process)
            process.wait()
            if trip.open_moves:
                out_of_time = time.monotonic() - began >= seconds
                trip.complaint = f"not done within {seconds:.0f} s" if out_of_time else _last_words(process)
        finally:
            watch.cancel()
            _kill(process)
            process.wait()
            _close_pipes(process)
            with self._lock:
                self._process = None
        return trip

    def stop(self) -> None:
        """What it does ends now; large files go on from where they are next time."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                _kill(self._process)

    def allow(self) -> None:
        with self._lock:
            self._stopped = False

    @staticmethod
    def _talk(process: subprocess.Popen[bytes], job: Job, trip: Trip) -> None:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return  # it ended at once: its last words say why
        for line in process.stdout:
            if not line.endswith(b"\n"):
                return  # ended while it spoke: that move is open
            trip.carried.append(msgspec.json.decode(line, type=Carried))
            trip.open_moves.pop(0)


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "paceline.training.courier"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # a signal to the whole group must not end what brings the outputs home
    )  # fmt: skip


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)


def _last_words(process: subprocess.Popen[bytes]) -> str:
    said = process.stderr.read().decode(errors="replace").strip().splitlines() if process.stderr else []
    return said[-1] if said else "it was ended"


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        try:
            if pipe:
                pipe.close()
        except BrokenPipeError:
            pass  # the rest of a job that nobody reads any more
