"""The one thread of a recorder: writes what was recorded, samples memory, and notices when training stands still.

A stall is a step that lasts longer than max(`seconds`, `factor` × the median of the last steps). It is said once per
step: an event in the log, and a file stall-STEP.txt with the open phases, the open collectives and the stacks of all
threads, written while the job still hangs.
"""

from __future__ import annotations

import faulthandler
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

INTERVAL = 1.0
"""Seconds; what kill -9 can cost."""
FEW_STEPS = 5
FIRST_STEPS = 20.0
"""The first steps compile and open connections: they may last this much longer."""
MOST_DUMPS = 5
_NS = 1_000_000_000


@dataclass(frozen=True)
class StallLimit:
    seconds: float = 60.0
    factor: float = 10.0


class Watchdog:
    def __init__(self, recorder: Recorder, limit: StallLimit) -> None:
        self._recorder, self._limit = recorder, limit
        self._wake = threading.Event()
        self._done = False
        self._thread = threading.Thread(target=self._run, name="paceline-recorder", daemon=True)
        self._said = -1
        self._dumps: list[Path] = []

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Write now: steps are so short that memory fills faster than usual."""
        self._wake.set()

    @property
    def thread(self) -> threading.Thread:
        return self._thread

    def stop(self) -> None:
        self._done = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * INTERVAL + 5)

    def _run(self) -> None:
        while not self._done:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            if self._done:
                return
            self._recorder.sample_memory()
            self._recorder.write()
            self._look()

    def _look(self) -> None:
        step = self._recorder.current
        lasted = (perf_counter_ns() - step.start) / _NS
        if step.number != self._said and lasted > self._allowed():
            self._said = step.number
            self._dump(lasted)

    def _allowed(self) -> float:
        if len(self._recorder.durations) < FEW_STEPS:
            return self._limit.seconds * FIRST_STEPS
        return max(self._limit.seconds, self._limit.factor * self._usual())

    def _dump(self, lasted: float) -> None:
        recorder, step = self._recorder, self._recorder.current
        now = perf_counter_ns()
        waiting = [talk for talk in list(step.talks) if not talk.end]
        text = [
            f"step {step.number} has lasted {lasted:.1f} s, usual are {self._usual():.3f} s",
            f"phase: {' > '.join(recorder.within) or 'none is open'}",
            *(
                f"inside {talk.op} of group {talk.group} ({talk.bytes} bytes) for {(now - talk.start) / _NS:.1f} s"
                for talk in waiting[:8]
            ),
        ]
        recorder.event("stall", "; ".join(text))
        recorder.write()
        assert recorder.directory is not None
        self._write_stacks(recorder.directory / f"stall-{step.number}.txt", "\n".join(text))
        recorder.flush()

    def _write_stacks(self, path: Path, text: str) -> None:
        try:
            with path.open("w") as file:
                file.write(f"{text}\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError as error:
            self._recorder.complain(error)
        self._dumps.append(path)
        for old in self._dumps[:-MOST_DUMPS]:
            old.unlink(missing_ok=True)
        del self._dumps[:-MOST_DUMPS]

    def _usual(self) -> float:
        """Median of the last steps, in seconds."""
        durations = sorted(self._recorder.durations)
        return durations[len(durations) // 2] / _NS if durations else 0.0
