"""The light recorder for training loops: records steps, phases, data wait and collectives; keeps the last steps on disk.

with Recorder("runs/today") as recorder:
    for batch in recorder.data(loader):
        with recorder.phase("forward_backward"):
            …
        recorder.step()
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Tuple, TypeVar

from paceline.core.errors import UsageError
from paceline.recorder import hooks
from paceline.recorder.append_log import SegmentedLog
from paceline.recorder.device_memory import sample_memory
from paceline.recorder.exit_hooks import ExitHooks
from paceline.recorder.identity import Identity, identify
from paceline.recorder.phases import Phase, TimedIterable
from paceline.recorder.step import DATA_WAIT, CollectiveRecord, StepRecord
from paceline.recorder.watchdog import StallLimit, Watchdog

SCHEMA = "paceline.light/1"
SEGMENT_BYTES = 16 << 20
SUMMARY_STEPS = 50_000
SUMMARY_KEPT = 4
_RECENT = 65
BACKLOG = 2048
"""Steps and collectives that may wait for the background thread. Beyond that it is woken; beyond four times as many, steps
lose their collectives, or are lost."""
FLUSH_TIMEOUT = 5.0
"""Seconds a flush waits for another flush in progress, e.g. on a file system that hangs."""

Batch = TypeVar("Batch")
GroupMembers = Tuple[Tuple[int, ...], str]
"""Global ranks, and the framework's name of the group."""


class Recorder:
    """Cheap enough to stay on; installs no hook, starts no thread and writes no file before `start` (or `with`).

    The first `warm_up` steps include what happened before the loop (imports, compiling, connecting): they are written,
    and readers leave them out. The last `steps` to 2 × `steps` steps are kept in detail, the summary of each step for at
    least the last 150,000. `rank`, `world_size` and `job` are detected if not given. With `collectives`, those of
    torch.distributed and mindspore are recorded if these are imported before `start`. Where they only queue work for a
    device, the recorder waits for the device in one of `exact_every` steps (0: never) to see their real start and end.
    """

    def __init__(
        self,
        output_dir: str | Path,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        job: str | None = None,
        steps: int = 1000,
        first_step: int = 1,
        warm_up: int = 1,
        collectives: bool = True,
        exact_every: int = 100,
        stall: StallLimit | None = None,
    ) -> None:
        if steps < 1:
            raise UsageError(f"steps={steps}: must be at least 1")
        self.output_dir = Path(output_dir)
        self._identity_arguments = (rank, world_size, job)
        self._warm_up = warm_up
        self._steps, self._collectives, self._exact_every = steps, collectives, exact_every
        self._stall = stall or StallLimit()
        self.current = StepRecord(first_step, 0)
        self.durations: deque[int] = deque(maxlen=_RECENT)
        self.groups: dict[str, GroupMembers] = {}
        self._finished: deque[StepRecord] = deque(maxlen=4 * BACKLOG)
        self._added = self._taken = 0
        """Steps and collectives handed to the background thread (counted by the training thread), and taken by it."""
        self._writing = threading.RLock()
        self.identity: Identity | None = None
        self.directory: Path | None = None
        """Of this rank's files; known after `start`."""
        self._phases: dict[str, Phase] = {}
        self._memory: tuple[int, ...] | None = None
        self._origin = self._started = self._lost = 0
        self.running = False
        """Between `start` and `close`; read by every hook."""

    # -- called by the training loop ---------------------------------------------------------------------------------

    def start(self) -> Recorder:
        """Identify this rank, install the hooks, start the background thread; a second call has no effect."""
        if self.running:
            return self
        self.identity = identify(*self._identity_arguments)
        self._started, self._origin = time.time_ns(), perf_counter_ns()
        self.directory = self.output_dir / _directory_name(self.identity, self._started)
        self._log = SegmentedLog(self.directory, "steps", self._head, lines=self._steps, size=SEGMENT_BYTES)
        self._summary = SegmentedLog(
            self.directory, "summary", self._summary_head, lines=SUMMARY_STEPS, size=SEGMENT_BYTES, kept=SUMMARY_KEPT
        )
        self.current = StepRecord(self.current.number, self._origin)
        self.running = True
        if self._collectives:
            hooks.install(self)
        self._exit_hooks = ExitHooks(self)
        self._watchdog = Watchdog(self, self._stall)
        self._watchdog.start()
        return self

    def step(self, number: int | None = None) -> None:
        """End the current step and begin the next; `number` of the step that ends, if it does not follow the last one."""
        if not self.running:
            return
        now = perf_counter_ns()
        done = self.current
        if number is not None:
            done.number = number
        self.current = StepRecord(done.number + 1, now)
        done.end, done.memory, self._memory = now, self._memory, None
        self._added += len(done.collectives) + 1
        if self._added - self._taken > BACKLOG:
            self._limit_backlog(done)
        self._finished.append(done)

    def phase(self, name: str) -> Phase:
        """A context manager for a phase of the step: data_wait, forward, backward, forward_backward, tail, or any name."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase(self, name)
        return phase

    def data(self, source: Iterable[Batch]) -> TimedIterable[Batch]:
        """Iterate over the same batches; the time to get each one is recorded as data_wait."""
        return TimedIterable(source, self.phase(DATA_WAIT))

    def data_parallel(self, model: Any) -> None:
        """Record the gradient all-reduces of torch's DistributedDataParallel, which no wrapped function sees."""
        from paceline.recorder.data_parallel import record_buckets

        record_buckets(self, hooks.get_torch_hooks(self), model)

    def flush(self) -> None:
        """Write all pending lines, and export the kept steps (step_trace_time.csv, communication.json, trace_view.json)."""
        if self.running:
            self.write()
            self._export()

    def close(self) -> None:
        """Flush, remove the hooks, stop the thread; a second call has no effect."""
        if not self.running:
            return
        self._watchdog.stop()
        hooks.remove(self)
        self._exit_hooks.remove()
        self.event("closed", "")
        self.flush()
        self.running = False
        self._log.close()
        self._summary.close()

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.event("exception", f"{type(error).__name__}: {error}")
        self.close()

    # -- called by hooks, watchdog and exit hooks --------------------------------------------------------------------

    @property
    def open_phases(self) -> list[str]:
        """Outermost first."""
        entered = [(start, phase.name) for phase in list(self._phases.values()) for start in list(phase.starts)]
        return [name for _, name in sorted(entered)]

    def add_blocked_time(self, collective: CollectiveRecord, waited: int) -> None:
        """The training thread waited `waited` ns for this collective."""
        if collective.start >= self.current.start:
            collective.blocked += waited
        else:
            self.current.extra_blocked += waited  # begun in an earlier step, which may be written already

    @property
    def is_exact(self) -> bool:
        """Whether collectives of this step wait for the device; the same steps on all ranks."""
        return self._exact_every > 0 and self.current.number % self._exact_every == 0

    def register_group(self, name: str, ranks: tuple[int, ...], called: str) -> None:
        """Write a group to the log before its first collective; the head of every later segment repeats it."""
        if self.groups.get(name) != (ranks, called):
            self.groups[name] = (ranks, called)
            self._log.append(json.dumps({"group": name, "ranks": ranks, "called": called}) + "\n")

    def event(self, kind: str, text: str) -> None:
        """Log a single event (stall, exception, close) after the steps before it."""
        self.write()
        self._log_event(kind, text)

    def _log_event(self, kind: str, text: str) -> None:
        event = {"event": kind, "t": perf_counter_ns() - self._origin, "step": self.current.number, "text": text[:2000]}
        self._log.append(json.dumps(event) + "\n")
        self._summary.append(json.dumps([kind, self.current.number, text[:300]]) + "\n")

    def sample_memory(self) -> None:
        self._memory = (perf_counter_ns() - self._origin, *sample_memory())

    def warn_disk_error(self, error: OSError) -> None:
        self._log.warn_disk_error(error)

    def write(self) -> None:
        """Format the finished steps and write them to the log; does nothing while another thread hangs in a write."""
        if not self._writing.acquire(timeout=FLUSH_TIMEOUT):
            return
        try:
            for _ in range(len(self._finished)):  # steps that end meanwhile are written in the next round
                self._write_step(self._finished.popleft())
            if self._log.lost > self._lost:
                self._lost = self._log.lost
                self._log_event("lost", f"{self._lost} steps so far could not be written in time")
            self._log.write()
            self._summary.write()
        finally:
            self._writing.release()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _head(self, segment: int, kind: str = "steps") -> str:
        assert self.identity is not None
        identity = self.identity
        head = {
            "schema": SCHEMA,
            "kind": kind,
            "segment": segment,
            "rank": identity.rank,
            "world_size": identity.world_size,
            "device": identity.device,
            "host": identity.host,
            "job": identity.job,
            "pid": identity.pid,
            "started": self._started,
        }
        if kind == "steps":
            head["warm_up"] = self._warm_up
            head["groups"] = {name: {"ranks": ranks, "called": called} for name, (ranks, called) in self.groups.items()}
        return json.dumps(head) + "\n"

    def _write_step(self, step: StepRecord) -> None:
        line, summary = step.to_lines(self._origin)
        self._taken += len(step.collectives) + 1
        self.durations.append(step.end - step.start)
        self._log.append(line)
        self._summary.append(summary)

    def _limit_backlog(self, done: StepRecord) -> None:
        """Steps end faster than they are written: wake the thread; if that does not help, drop collectives, then steps."""
        self._watchdog.wake()
        if self._added - self._taken > 4 * BACKLOG:
            self._added -= len(done.collectives)
            done.dropped += len(done.collectives)
            done.extra_blocked += sum(collective.blocked for collective in done.collectives)
            done.collectives = []
        if len(self._finished) == self._finished.maxlen:
            self._taken += 1
            self._log.lost += 1

    def _summary_head(self, segment: int) -> str:
        return self._head(segment, "summary")

    def _export(self) -> None:
        from paceline.recorder.export import export

        assert self.directory is not None
        try:
            export(self._log.segments(), self.directory)
        except OSError as error:
            self._log.warn_disk_error(error)


def _directory_name(identity: Identity, started: int) -> str:
    """rank-00003-20261117T020304.123456-4711: each run has a directory of its own."""
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(started // 1_000_000_000))
    return f"rank-{identity.rank:05}-{moment}.{started // 1000 % 1_000_000:06}-{identity.pid}"
