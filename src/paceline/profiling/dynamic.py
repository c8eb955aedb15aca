"""`DynamicProfilerMonitor`: start recordings while training runs, by editing a JSON file.

Steps are counted from 1, first and last included, whether step() is called at the end of each step or the monitor is one
of MindSpore's callbacks. All ranks begin on the same step or none does (step_sync.py).
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

from paceline.profiling.callback_adapter import TrainingCallback, with_callback_base
from paceline.profiling.config_watcher import LOGGER, ConfigFile, PollingThread
from paceline.profiling.dynamic_config import FILE_NAME, RecordRequest
from paceline.profiling.output_files import RecordingSpec
from paceline.profiling.recording import RecordingSequence
from paceline.profiling.scheduling import step_window
from paceline.profiling.step_sync import DIRECTORY, Decision, RankStatus, StepSync, heartbeat
from paceline.profiling.warning import warn
from paceline.recorder.identity import identify

DEFAULT_INTERVAL = 2.0


class DynamicProfilerMonitor(TrainingCallback):
    """Watches `cfg_path/profiler_config.json`, which is created with defaults if absent.

        monitor = DynamicProfilerMonitor(cfg_path="./dynamic", output_path="./dyn_profile_data")
        for batch in data:
            train(batch)
            monitor.step()
        monitor.stop()

    or in MindSpore's callbacks. `cfg_path` must be a directory shared by all hosts of the job. Results go to
    `output_path/rank{r}_start{a}_stop{b}`.
    """

    def __new__(cls, *_: object, **__: object) -> DynamicProfilerMonitor:
        return object.__new__(with_callback_base(cls))

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
        self._recordings = RecordingSequence(backend)
        self._lock = threading.Lock()
        self._publish_lock = threading.Lock()
        self._request: RecordRequest | None = None
        self._active: RecordRequest | None = None
        self._step = 0
        self._last_measured = (0, time.monotonic())
        job_name = identity.job or f"{identity.host}-{identity.pid}"
        self._step_sync = StepSync(self._config.path.parent / DIRECTORY / _file_name(job_name))
        interval = _interval(poll_interval)
        self._state = RankStatus(identity.rank, identity.world_size, identity.host, identity.pid, interval)
        self._published = 0.0
        self._decisions: dict[str, Decision] = {}
        self._begin(interval)

    # -- called by training -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One step of training ends here, the next begins."""
        self._enter(self._step + 1)

    def stop(self) -> None:
        """Finish a recording in progress and stop the thread. A second call has no effect."""
        self._watcher.stop()
        if self._recordings.current is not None and self._active is not None:
            warn(
                f"training ended at step {self._step}, before stop_step {self._active.stop}; "
                "what was recorded until then is kept."
            )
            self._finish()
        self._publish(ended=True)

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
            self._step_sync.directory.mkdir(parents=True, exist_ok=True)
            self._step_sync.clear_old_decisions(self._identity.rank)
        except OSError as error:
            LOGGER.warning("%s: not writable (%s); the ranks cannot agree on steps", self._config.path.parent, error)
        self._poll()
        self._enter(1)
        self._watcher = PollingThread(self._poll, interval)
        self._watcher.start()
        atexit.register(_stop_at_exit, weakref.ref(self))

    def _enter(self, number: int) -> None:
        """Step `number` begins."""
        with self._lock:
            before, self._step = self._step, number
            request = self._request
        if request is not None and before < request.start < number and self._active is None and before + 1 < number:
            self._warn(
                f"training went from step {before} to {number} at once and skipped start_step {request.start}; "
                "with data sinking use sink_size=1"
            )
        if self._active is None and request is not None and request.start == number and self._may_record(request):
            self._active = request
            self._publish(state="recording", start=request.start, stop=request.stop)
        if self._active is None:
            return
        action = step_window(self._active.start, self._active.stop)(number)
        self._recordings.enter(number, action, self._spec, self._finish)
        if self._recordings.current is None and self._active is not None:
            self._fail(self._active)

    def _may_record(self, request: RecordRequest) -> bool:
        decision = self._decide(request, now=True)
        if decision is None or not decision.go:
            reason = decision.reason if decision else "the other ranks did not answer"
            self._warn(
                f"steps {request.start} to {request.stop} are not recorded on any rank: {reason}; request later steps"
            )
            self._publish(state="missed", note=reason)
            return False
        if not request.includes(self._identity.rank):
            self._publish(state="skipped")
            return False
        return True

    def _spec(self) -> RecordingSpec:
        assert self._active is not None
        request, base = self._active, Path(self._active.output or self._output).absolute()
        return RecordingSpec(
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
            directory = self._recordings.written[-1]
            LOGGER.info(
                "rank %d recorded steps %d to %d: %s",
                self._identity.rank,
                self._active.start,
                self._active.stop,
                directory,
            )
            self._publish(state="recorded", output=str(directory))
            self._active = None

    def _fail(self, request: RecordRequest) -> None:
        self._active = None
        self._publish(state="missed", note="the recording failed; see the log of the rank")

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        request = self._config.poll()
        if request is not None:
            self._adopt(request)
        elif time.monotonic() - self._published >= heartbeat(self._state.interval, self._state.world_size):
            self._publish()
        waiting = self._request
        if waiting is not None and waiting.is_active and waiting.start > self._step:
            self._decide(waiting, now=False)

    def _adopt(self, request: RecordRequest) -> None:
        """Hand the request to the training thread, and publish before which step this happened."""
        with self._lock:
            self._request = request
            before = self._step + 1
        late = request.is_active and request.start < before
        if late:
            self._warn(f"start_step {request.start} is too early: step {before - 1} is running; nothing is recorded")
        elif request.is_active and self._active is not None and request.start <= self._active.stop:
            self._warn(
                f"start_step {request.start} must be greater than {self._active.stop}, the last step of the recording in progress"
            )
        state = "missed" if late else "waiting" if request.is_active else "idle"
        if self._active is not None:
            state = self._state.state
        self._publish(seen=request.version, before=before, state=state, start=request.start, stop=request.stop)

    def _decide(self, request: RecordRequest, *, now: bool) -> Decision | None:
        if request.version not in self._decisions:
            if self._identity.world_size == 1:
                return Decision(True, self._identity.rank)
            try:
                decision = self._step_sync.decide(request, self._identity.rank, now=now)
            except OSError as error:
                self._warn(f"the ranks cannot agree ({error})")
                return None
            if decision is None:
                return None
            self._decisions[request.version] = decision
        return self._decisions[request.version]

    def _publish(self, **changes: Any) -> None:
        """Publish the changed fields of this rank's status; called by both threads."""
        with self._publish_lock:
            step, now = self._step, time.monotonic()
            steps, seconds = step - self._last_measured[0], now - self._last_measured[1]
            step_seconds_now = round(seconds / steps, 6) if steps > 0 else self._state.step_seconds
            if steps > 0:
                self._last_measured = (step, now)
            self._state = replace(self._state, **{"step": step, "step_seconds": step_seconds_now, **changes})
            self._published = now
            try:
                self._step_sync.publish(self._state)
            except OSError as error:
                LOGGER.debug("rank %d could not publish its status: %s", self._identity.rank, error)

    def _warn(self, text: str) -> None:
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
