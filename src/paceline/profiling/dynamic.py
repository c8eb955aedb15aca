"""`DynamicProfilerMonitor`: recordings asked for while training runs, through a JSON file.

Steps are counted from 1, both ends included, whether step() is called at the end of each step or the monitor stands in
MindSpore's list of callbacks. All ranks begin on the same step or none does (agreement.py).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.profiling.agreement import DIRECTORY, Agreement, Decision, RankState, heartbeat
from paceline.profiling.callback import TrainingCallback, with_callback_type
from paceline.profiling.config_watch import LOGGER, ConfigFile, Watcher
from paceline.profiling.dynamic_config import FILE_NAME, Request
from paceline.profiling.output import Order
from paceline.profiling.recorder.identity import identify
from paceline.profiling.recording import Recordings
from paceline.profiling.scheduling import window
from paceline.profiling.warning import warn

DEFAULT_INTERVAL = 2.0


class DynamicProfilerMonitor(TrainingCallback):
    """Watches `cfg_path/profiler_config.json`, which is created with defaults if absent.

        monitor = DynamicProfilerMonitor(cfg_path="./dynamic", output_path="./dyn_profile_data")
        for batch in data:
            train(batch)
            monitor.step()
        monitor.stop()

    or in MindSpore's callbacks. `cfg_path` has to be a directory that all hosts of the job see. Results go to
    `output_path/rank{r}_start{a}_stop{b}`.
    """

    def __new__(cls, *_: object, **__: object) -> DynamicProfilerMonitor:
        return object.__new__(with_callback_type(cls))

    def __init__(
        self,
        cfg_path: str | Path,
        output_path: str | Path = "./dyn_profile_data",
        poll_interval: float = DEFAULT_INTERVAL,
        *,
        backend: str = "auto",
        job: str | None = None,
        **_: Any,
    ) -> None:
        identity = identify(job=job)
        self._identity = identity
        self._output = Path(output_path).absolute()
        self._config = ConfigFile(Path(cfg_path).absolute() / FILE_NAME)
        self._recordings = Recordings(backend)
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._request: Request | None = None
        self._active: Request | None = None
        self._step = 0
        self._seen_at = (0, time.monotonic())
        named = identity.job or f"{identity.host}-{identity.pid}"
        self._agreement = Agreement(self._config.path.parent / DIRECTORY / _file_name(named))
        interval = _interval(poll_interval)
        self._state = RankState(identity.rank, identity.world_size, identity.host, identity.pid, interval)
        self._published = 0.0
        self._decisions: dict[str, Decision] = {}
        self._begin(interval)

    # -- what training calls ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One step of training ends here, the next begins."""
        self._enter(self._step + 1)

    def stop(self) -> None:
        """Finish: a recording under way is kept, the thread ends. Calling it twice does no harm."""
        self._watcher.stop()
        if self._recordings.current is not None and self._active is not None:
            warn(f"training ended at step {self._step}, before stop_step {self._active.stop}; "
                 "what was recorded until then is kept.")  # fmt: skip
            self._finish()
        self._tell(ended=True)

    def begin_step(self, number: int) -> None:
        if number != self._step:
            self._enter(number)

    def end_step(self, number: int) -> None:
        self._enter(number + 1)

    def end_training(self) -> None:
        self.stop()

    @property
    def recordings(self) -> list[Path]:
        return list(self._recordings.written)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _begin(self, interval: float) -> None:
        try:
            self._config.create()
            self._agreement.directory.mkdir(parents=True, exist_ok=True)
            self._agreement.forget_earlier_runs(self._identity.rank)
        except OSError as error:
            LOGGER.warning("%s: nothing can be written there (%s); ranks cannot agree", self._config.path.parent, error)
        self._look()
        self._enter(1)
        self._watcher = Watcher(self._look, interval)
        self._watcher.start()
        atexit.register(_stop_at_exit, weakref.ref(self))

    def _enter(self, number: int) -> None:
        """Step `number` begins."""
        with self._lock:
            before, self._step = self._step, number
            request = self._request
        if request is not None and before < request.start < number and self._active is None and before + 1 < number:
            self._say(f"steps were counted from {before} to {number} in one stride, past start_step {request.start}; "
                      "with data sinking use sink_size=1")  # fmt: skip
        if self._active is None and request is not None and request.start == number and self._may_record(request):
            self._active = request
            self._tell(state="recording", start=request.start, stop=request.stop)
        if self._active is None:
            return
        action = window(self._active.start, self._active.stop)(number)
        self._recordings.enter(number, action, self._order, self._finish)
        if self._recordings.current is None and self._active is not None:
            self._fail(self._active)

    def _may_record(self, request: Request) -> bool:
        decision = self._decide(request, now=True)
        if decision is None or not decision.go:
            reason = decision.reason if decision else "no word of the other ranks"
            self._say(
                f"steps {request.start} to {request.stop} are recorded nowhere, because {reason}; ask for later steps"
            )
            self._tell(state="missed", note=reason)
            return False
        if not request.wants(self._identity.rank):
            self._tell(state="passed over")
            return False
        return True

    def _order(self) -> Order:
        assert self._active is not None
        request, base = self._active, Path(self._active.output or self._output).absolute()
        return Order(
            directory=base / f"rank{self._identity.rank}_start{request.start}_stop{request.stop}",
            options=request.options,
            identity=self._identity,
            analyse=request.analyse,
            asynchronous=request.asynchronous,
        )

    def _finish(self) -> None:
        before = len(self._recordings.written)
        self._recordings.close({}, lambda: None)
        if len(self._recordings.written) > before and self._active is not None:
            where = self._recordings.written[-1]
            LOGGER.info("rank %d recorded steps %d to %d: %s",
                        self._identity.rank, self._active.start, self._active.stop, where)  # fmt: skip
            self._tell(state="recorded", output=str(where))
            self._active = None

    def _fail(self, request: Request) -> None:
        self._active = None
        self._tell(state="missed", note="the recording failed; the rank's log says why")

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        request = self._config.poll()
        if request is not None:
            self._adopt(request)
        elif time.monotonic() - self._published >= heartbeat(self._state.interval, self._state.world_size):
            self._tell()
        waiting = self._request
        if waiting is not None and waiting.asks and waiting.start > self._step:
            self._decide(waiting, now=False)

    def _adopt(self, request: Request) -> None:
        """From here on the training thread knows it: whether that is in time is said with the step it is at."""
        with self._lock:
            self._request = request
            before = self._step + 1
        late = request.asks and request.start < before
        if late:
            self._say(f"start_step {request.start} lies behind: step {before - 1} runs; nothing is recorded for it")
        elif request.asks and self._active is not None and request.start <= self._active.stop:
            self._say(
                f"start_step {request.start} must be greater than {self._active.stop}, where the recording under way stops"
            )
        state = "missed" if late else "waiting" if request.asks else "idle"
        if self._active is not None:
            state = self._state.state
        self._tell(seen=request.version, before=before, state=state, start=request.start, stop=request.stop)

    def _decide(self, request: Request, *, now: bool) -> Decision | None:
        if request.version not in self._decisions:
            if self._identity.world_size == 1:
                return Decision(True, self._identity.rank)
            try:
                decision = self._agreement.settle(request, self._identity.rank, now=now)
            except OSError as error:
                self._say(f"the ranks cannot agree ({error})")
                return None
            if decision is None:
                return None
            self._decisions[request.version] = decision
        return self._decisions[request.version]

    def _tell(self, **news: Any) -> None:
        """Publish what is new of this rank; both threads do."""
        with self._telling:
            step, now = self._step, time.monotonic()
            steps, seconds = step - self._seen_at[0], now - self._seen_at[1]
            pace = round(seconds / steps, 6) if steps > 0 else self._state.step_seconds
            if steps > 0:
                self._seen_at = (step, now)
            self._state = replace(self._state, **{"step": step, "step_seconds": pace, **news})
            self._published = now
            try:
                self._agreement.publish(self._state)
            except OSError as error:
                LOGGER.debug("rank %d cannot say where it is: %s", self._identity.rank, error)

    def _say(self, text: str) -> None:
        LOGGER.warning("rank %d: %s", self._identity.rank, text)


def _interval(given: object) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0:
        return float(given)
    warn(f"Poll interval must be a number of seconds greater than 0, but got {given!r}, reset to {DEFAULT_INTERVAL:g}.")
    return DEFAULT_INTERVAL


def _file_name(job: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in job).lstrip(".") or "job"


def _stop_at_exit(reference: weakref.ref[DynamicProfilerMonitor]) -> None:
    monitor = reference()
    if monitor is not None and not monitor._state.ended and monitor._identity.pid == os.getpid():
        monitor.stop()
