"""The recorder's background thread: writes the log, samples memory, and detects stalled steps.

A stall is a step that lasts longer than max(`seconds`, `factor` × median of the last steps). It is reported once per
step: an event in the log, and a file stall-STEP.txt with the open phases, the open collectives and the stacks of all
threads, written while the job still hangs.
"""

from __future__ import annotations

import faulthandler
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from paceline.recorder.recording_state import RecorderControl

INTERVAL = 1.0
"""Seconds between two writes; a process killed with -9 loses at most the steps of this time."""
MIN_STEPS_FOR_MEDIAN = 5
FIRST_STEPS_FACTOR = 20.0
"""The first steps compile and open connections: they may last this many times longer."""
MAX_DUMPS = 5
_NS = 1_000_000_000


@dataclass(frozen=True)
class StallLimit:
    seconds: float = 60.0
    factor: float = 10.0


class Watchdog:
    def __init__(self, recorder: RecorderControl, limit: StallLimit) -> None:
        self._recorder, self._limit = recorder, limit
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="paceline-recorder", daemon=True)
        self._reported_step = -1
        self._dumps: list[Path] = []

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Write now: steps are so short that memory fills before the next interval."""
        self._wake.set()

    @property
    def thread(self) -> threading.Thread:
        return self._thread

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * INTERVAL + 5)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            if self._stopping:
                return
            self._recorder.sample_memory()
            self._recorder.write()
            self._check_for_stall()

    def _check_for_stall(self) -> None:
        step = self._recorder.current
        elapsed = (perf_counter_ns() - step.start) / _NS
        if step.number != self._reported_step and elapsed > self._allowed_seconds():
            self._reported_step = step.number
            self._report_stall(elapsed)

    def _allowed_seconds(self) -> float:
        if len(self._recorder.durations) < MIN_STEPS_FOR_MEDIAN:
            return self._limit.seconds * FIRST_STEPS_FACTOR
        return max(self._limit.seconds, self._limit.factor * self._median_seconds())

    def _report_stall(self, elapsed: float) -> None:
        recorder, step = self._recorder, self._recorder.current
        now = perf_counter_ns()
        open_calls = [collective for collective in list(step.collectives) if not collective.end]
        lines = [
            f"step {step.number} has lasted {elapsed:.1f} s, the median step takes {self._median_seconds():.3f} s",
            f"phase: {' > '.join(recorder.open_phases) or 'none is open'}",
            *(
                f"inside {call.op} of group {call.group} ({call.bytes} bytes) for {(now - call.start) / _NS:.1f} s"
                for call in open_calls[:8]
            ),
        ]
        recorder.event("stall", "; ".join(lines))
        recorder.write()
        assert recorder.directory is not None
        self._write_stacks(recorder.directory / f"stall-{step.number}.txt", "\n".join(lines))
        recorder.flush()

    def _write_stacks(self, path: Path, text: str) -> None:
        try:
            with path.open("w") as file:
                file.write(f"{text}\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError as error:
            self._recorder.warn_disk_error(error)
        self._dumps.append(path)
        for old in self._dumps[:-MAX_DUMPS]:
            old.unlink(missing_ok=True)
        del self._dumps[:-MAX_DUMPS]

    def _median_seconds(self) -> float:
        """Of the last steps."""
        durations = sorted(self._recorder.durations)
        return durations[len(durations) // 2] / _NS if durations else 0.0
