"""The recorder a training loop holds: steps, phases, data and collectives in; a ring of the last steps on disk.

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
from typing import Any, TypeVar

from paceline.errors import UsageError
from paceline.profiling.recorder import hooks
from paceline.profiling.recorder.ending import Endings
from paceline.profiling.recorder.identity import Identity, identify
from paceline.profiling.recorder.log import SegmentedLog
from paceline.profiling.recorder.memory import memory_now
from paceline.profiling.recorder.phases import Phase, Waiting
from paceline.profiling.recorder.step import DATA_WAIT, Step, Talk
from paceline.profiling.recorder.watchdog import StallLimit, Watchdog

SCHEMA = "paceline.light/1"
SEGMENT_BYTES = 16 << 20
SUMMARY_STEPS = 50_000
SUMMARY_KEPT = 4
_RECENT = 65
ROOM = 2048
"""Steps and collectives that may wait for the thread; it is woken then, and steps beyond four times as many lose their
details, or get lost."""
PATIENCE = 5.0
"""Seconds a flush waits for another one that is under way, e.g. on a file system that hangs."""

Batch = TypeVar("Batch")
Group = tuple[tuple[int, ...], str]
"""Global ranks, and what the framework calls the group."""


class Recorder:
    """Light and always on; nothing is hooked, started or written before `start` (or `with`).

    The first `warm_up` steps hold what came before the loop (imports, compiling, connecting): they are written, and left
    out by readers. `steps` are kept in detail (at least; at most twice as many lie on disk), the summary of each step
    for the last 150,000 or more. `rank`, `world_size` and `job` are found out where they are not given. With
    `collectives` those of torch.distributed and mindspore are recorded, if these are imported before `start`. Where
    they only queue work for a device, their real start and end are seen by waiting for the device, in one of
    `exact_every` steps (0: never).
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
            raise UsageError(f"steps={steps}: at least one step has to be kept")
        self.output_dir = Path(output_dir)
        self._asked = (rank, world_size, job)
        self._warm_up = warm_up
        self._steps, self._collectives, self._exact_every = steps, collectives, exact_every
        self._stall = stall or StallLimit()
        self.current = Step(first_step, 0)
        self.durations: deque[int] = deque(maxlen=_RECENT)
        self.groups: dict[str, Group] = {}
        self._finished: deque[Step] = deque(maxlen=4 * ROOM)
        self._added = self._taken = 0
        """Steps and collectives that were handed to the thread (counted by the training), and that it took."""
        self._writing = threading.RLock()
        self.identity: Identity | None = None
        self.directory: Path | None = None
        """Where this rank's files lie; known after `start`."""
        self._phases: dict[str, Phase] = {}
        self._memory: tuple[int, ...] | None = None
        self._origin = self._started = self._lost = 0
        self.running = False
        """Between `start` and `close`; read by every hook."""

    # -- what a training loop calls ----------------------------------------------------------------------------------

    def start(self) -> Recorder:
        """Find out who we are, hook the collectives, begin to write; calling it twice does no harm."""
        if self.running:
            return self
        self.identity = identify(*self._asked)
        self._started, self._origin = time.time_ns(), perf_counter_ns()
        self.directory = self.output_dir / _directory_name(self.identity, self._started)
        self._log = SegmentedLog(self.directory, "steps", self._head, lines=self._steps, size=SEGMENT_BYTES)
        self._summary = SegmentedLog(
            self.directory, "summary", self._summary_head, lines=SUMMARY_STEPS, size=SEGMENT_BYTES, kept=SUMMARY_KEPT
        )
        self.current = Step(self.current.number, self._origin)
        self.running = True
        if self._collectives:
            hooks.install(self)
        self._endings = Endings(self)
        self._watchdog = Watchdog(self, self._stall)
        self._watchdog.start()
        return self

    def step(self, number: int | None = None) -> None:
        """The current step ends, the next begins; `number` if it is not the one after the last."""
        if not self.running:
            return
        now = perf_counter_ns()
        done = self.current
        if number is not None:
            done.number = number
        self.current = Step(done.number + 1, now)
        done.end, done.memory, self._memory = now, self._memory, None
        self._added += len(done.talks) + 1
        if self._added - self._taken > ROOM:
            self._make_room(done)
        self._finished.append(done)

    def phase(self, name: str) -> Phase:
        """A context manager for a stretch of the step: data_wait, forward, backward, forward_backward, tail, any name."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase(self, name)
        return phase

    def data(self, source: Iterable[Batch]) -> Waiting[Batch]:
        """The same batches; the time each takes to come is recorded as data_wait."""
        return Waiting(source, self.phase(DATA_WAIT))

    def data_parallel(self, model: Any) -> None:
        """Record the gradient sums of torch's DistributedDataParallel, which hides them from everybody else."""
        from paceline.profiling.recorder.data_parallel import record_buckets

        record_buckets(self, hooks.torch_hooks(self), model)

    def flush(self) -> None:
        """Write what is in memory now, and the ring as step_trace_time.csv, communication.json and trace_view.json."""
        if self.running:
            self.write()
            self._export()

    def close(self) -> None:
        """Flush, unhook, stop the thread; calling it twice does no harm."""
        if not self.running:
            return
        self._watchdog.stop()
        hooks.remove(self)
        self._endings.remove()
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

    # -- what hooks, watchdog and endings call -----------------------------------------------------------------------

    @property
    def within(self) -> list[str]:
        """Phases that are open, outermost first."""
        entered = [(start, phase.name) for phase in list(self._phases.values()) for start in list(phase.starts)]
        return [name for _, name in sorted(entered)]

    def blocked(self, talk: Talk, waited: int) -> None:
        """The training thread stood still for `waited` ns until this collective was done."""
        if talk.start >= self.current.start:
            talk.blocked += waited
        else:
            self.current.blocked_more += waited  # begun in an earlier step, whose line is written

    @property
    def is_exact(self) -> bool:
        """Whether collectives of this step are waited for; the same steps on all ranks."""
        return self._exact_every > 0 and self.current.number % self._exact_every == 0

    def know_group(self, name: str, ranks: tuple[int, ...], called: str) -> None:
        """Collectives are about to use this group; every later segment repeats it."""
        if self.groups.get(name) != (ranks, called):
            self.groups[name] = (ranks, called)
            self._log.append(json.dumps({"group": name, "ranks": ranks, "called": called}) + "\n")

    def event(self, kind: str, text: str) -> None:
        """Something that happens once: a stall, an exception, the end; told after the steps before it."""
        self.write()
        self._tell(kind, text)

    def _tell(self, kind: str, text: str) -> None:
        where = {"event": kind, "t": perf_counter_ns() - self._origin, "step": self.current.number, "text": text[:2000]}
        self._log.append(json.dumps(where) + "\n")
        self._summary.append(json.dumps([kind, self.current.number, text[:300]]) + "\n")

    def sample_memory(self) -> None:
        self._memory = (perf_counter_ns() - self._origin, *memory_now())

    def complain(self, error: OSError) -> None:
        self._log.complain(error)

    def write(self) -> None:
        """Finished steps become lines, and lines go to the files; given up where another thread hangs in the disk."""
        if not self._writing.acquire(timeout=PATIENCE):
            return
        try:
            for _ in range(len(self._finished)):  # those that end meanwhile are the next round's
                self._write_step(self._finished.popleft())
            if self._log.lost > self._lost:
                self._lost = self._log.lost
                self._tell("lost", f"{self._lost} steps so far could not be written in time")
            self._log.write()
            self._summary.write()
        finally:
            self._writing.release()

    # -- how it is written -------------------------------------------------------------------------------------------

    def _head(self, segment: int, kind: str = "steps") -> str:
        assert self.identity is not None
        who = self.identity
        head = {
            "schema": SCHEMA, "kind": kind, "segment": segment, "rank": who.rank, "world_size": who.world_size,
            "device": who.device, "host": who.host, "job": who.job, "pid": who.pid, "started": self._started,
        }  # fmt: skip
        if kind == "steps":
            head["warm_up"] = self._warm_up
            head["groups"] = {name: {"ranks": ranks, "called": called} for name, (ranks, called) in self.groups.items()}
        return json.dumps(head) + "\n"

    def _write_step(self, step: Step) -> None:
        line, summary = step.lines(self._origin)
        self._taken += len(step.talks) + 1
        self.durations.append(step.end - step.start)
        self._log.append(line)
        self._summary.append(summary)

    def _make_room(self, done: Step) -> None:
        """Steps end faster than they are written: hurry, and keep no details where that does not help."""
        self._watchdog.wake()
        if self._added - self._taken > 4 * ROOM:
            self._added -= len(done.talks)
            done.left_out += len(done.talks)
            done.blocked_more += sum(talk.blocked for talk in done.talks)
            done.talks = []
        if len(self._finished) == self._finished.maxlen:
            self._taken += 1
            self._log.lost += 1

    def _summary_head(self, segment: int) -> str:
        return self._head(segment, "summary")

    def _export(self) -> None:
        from paceline.profiling.recorder.export import export

        assert self.directory is not None
        try:
            export(self._log.segments(), self.directory)
        except OSError as error:
            self._log.complain(error)


def _directory_name(who: Identity, started: int) -> str:
    """rank-00003-20261117T020304.123456-4711: a second run into the same directory lies beside the first."""
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(started // 1_000_000_000))
    return f"rank-{who.rank:05}-{moment}.{started // 1000 % 1_000_000:06}-{who.pid}"
