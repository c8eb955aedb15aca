"""The Profiler's state machine, tested with a backend that logs its calls."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.profiling import Profiler, ProfilerAction, schedule, tensor_board_trace_handler, tensorboard_trace_handler
from paceline.profiling.output_files import RecordingSpec, StepSpan
from paceline.profiling.warning import ProfilingWarning


class LoggingBackend:
    """Logs its calls; the call named by `failing` raises."""

    name = "logging"

    def __init__(self, log: list[Any], failing: str = "") -> None:
        self.log, self.failing = log, failing

    def begin(self, spec: RecordingSpec, action: ProfilerAction, step: int) -> None:
        self._do("begin", action.name, step)

    def advance(self, action: ProfilerAction, step: int) -> None:
        self._do("advance", action.name, step)

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        self._do("finish", [span.step for span in spans], metadata)
        return Path("recording")

    def analyse(self, recording: Path) -> None:
        self._do("analyse", recording)

    def discard(self) -> None:
        self._do("abandon")

    def _do(self, *what: Any) -> None:
        if what[0] == self.failing:
            raise OSError(28, "No space left on device")
        self.log.append(what)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    calls: list[Any] = []
    monkeypatch.setattr("paceline.profiling.recording.create_backend", lambda _: LoggingBackend(calls))
    yield calls


def finished(log: list[Any]) -> list[list[int]]:
    return [entry[1] for entry in log if entry[0] == "finish"]


def loop(profiler: Profiler, steps: int) -> None:
    for _ in range(steps):
        profiler.step()


def test_each_cycle_is_a_recording_of_its_active_steps(log: list[Any]) -> None:
    with Profiler(schedule=schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)) as profiler:
        loop(profiler, 12)
    assert finished(log) == [[3, 4], [7, 8]]
    assert log[:3] == [("begin", "WARM_UP", 2), ("advance", "RECORD", 3), ("advance", "RECORD_AND_SAVE", 4)]


def test_repeat_zero_repeats_until_training_ends(log: list[Any]) -> None:
    with pytest.warns(ProfilingWarning) as caught, Profiler(schedule=schedule(wait=0, active=1)) as profiler:
        loop(profiler, 5)
    assert finished(log)[:5] == [[0], [1], [2], [3], [4]]
    assert "perhaps the scheduling cycle has not yet completed" in str(caught[-1].message)


@pytest.mark.parametrize(
    ("steps", "text", "kept"),
    [
        (1, "Stop profiler while current state is WARMUP which will result in empty parsed data", []),
        (3, "Stop profiler while current state is RECORD which may result in incomplete parsed data", [[2]]),
        (4, "Stop profiler while current state is RECORD_AND_SAVE, perhaps", [[2, 3]]),
    ],
)
def test_training_shorter_than_the_schedule_keeps_what_was_recorded(
    log: list[Any], steps: int, text: str, kept: list[list[int]]
) -> None:
    profiler = Profiler(schedule=schedule(wait=1, warmup=1, active=3, repeat=1))
    loop(profiler, steps)
    with pytest.warns(ProfilingWarning, match=text):
        profiler.stop()
    assert finished(log) == kept


def test_training_without_an_active_step_warns(log: list[Any]) -> None:
    profiler = Profiler(schedule=schedule(wait=9, warmup=1, active=3, repeat=1))
    loop(profiler, 3)
    with pytest.warns(ProfilingWarning, match="before the first step to be recorded"):
        profiler.stop()
    assert not log


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ("WN", "WARMUP followed by NONE"),
        ("RN", "RECORD followed by NONE"),
        ("RW", "RECORD followed by WARMUP"),
    ],
)
def test_invalid_transitions_of_a_schedule_warn(log: list[Any], actions: str, text: str) -> None:
    names = {"N": ProfilerAction.NONE, "W": ProfilerAction.WARM_UP, "R": ProfilerAction.RECORD}
    profiler = Profiler(schedule=lambda step: names[actions[min(step, 1)]])
    with pytest.warns(ProfilingWarning, match=f"Incorrect schedule: {text}"):
        profiler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler.stop()


def test_start_and_stop_step_are_the_same_in_a_loop_and_as_a_callback(log: list[Any]) -> None:
    with Profiler(start_step=2, stop_step=5) as profiler:
        loop(profiler, 9)
    callback = Profiler(start_step=2, stop_step=5)
    for number in range(1, 9):
        context = SimpleNamespace(original_args=lambda n=number: SimpleNamespace(cur_step_num=n))
        callback.step_begin(context)
        callback.step_end(context)
    callback.end(None)
    assert finished(log) == [[2, 3, 4, 5], [2, 3, 4, 5]]


def test_callback_that_skips_start_step_warns(log: list[Any]) -> None:
    callback = Profiler(start_step=2, stop_step=5)
    callback.begin_step(1)
    with pytest.warns(ProfilingWarning, match="at once and skipped start_step 2"):
        callback.begin_step(10)
    assert not log


def test_start_to_stop_is_one_recording_without_a_schedule(log: list[Any]) -> None:
    profiler = Profiler(start_profile=False)
    assert not log
    profiler.start()
    with pytest.warns(ProfilingWarning, match="already started"):
        profiler.start()
    with pytest.warns(ProfilingWarning, match="step takes no effect"):
        profiler.step()
    profiler.stop()
    assert finished(log) == [[0]]
    with pytest.warns(ProfilingWarning, match="has not started"):
        profiler.stop()


def test_analyse_stops_and_analyses_as_in_the_older_api(log: list[Any]) -> None:
    Profiler().analyse()
    assert [entry[0] for entry in log] == ["begin", "finish", "analyse"]
    profiler = Profiler(schedule=schedule(wait=9, warmup=1, active=1), start_profile=False)
    with pytest.warns(ProfilingWarning, match="Please use 'on_trace_ready' to analyse data"):
        profiler.analyse()


def test_other_ranks_do_nothing(log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    with Profiler(schedule=schedule(wait=0, warmup=1, active=1, repeat=1), ranks=[0, 8]) as profiler:
        loop(profiler, 3)
    assert not log
    with pytest.warns(ProfilingWarning, match=r"ranks=\[16\]: this job has ranks 0 to 15"):
        Profiler(ranks=[16], start_profile=False)


def test_metadata_goes_into_every_recording(log: list[Any]) -> None:
    with Profiler(schedule=schedule(wait=0, warmup=1, active=1, repeat=2)) as profiler:
        profiler.add_metadata("model", "gpt2")
        profiler.add_metadata_json("sizes", json.dumps({"dp": 4}))
        with pytest.warns(ProfilingWarning, match="must be json format"):
            profiler.add_metadata_json("bad", "{")
        with pytest.warns(ProfilingWarning, match="must be string"):
            profiler.add_metadata("number", 3)  # type: ignore[arg-type]
        with pytest.warns(ProfilingWarning, match="model is already saved as metadata, override it"):
            profiler.add_metadata("model", "gpt3")
        loop(profiler, 4)
    assert [entry[2] for entry in log if entry[0] == "finish"] == [{"model": "gpt3", "sizes": {"dp": 4}}] * 2


@pytest.mark.parametrize(("failing", "text"), [("begin", "Nothing is recorded"), ("finish", "could not be written")])
def test_full_disk_does_not_raise(monkeypatch: pytest.MonkeyPatch, failing: str, text: str) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("paceline.profiling.recording.create_backend", lambda _: LoggingBackend(calls, failing))
    with pytest.warns(ProfilingWarning, match=text):
        profiler = Profiler(start_step=1, stop_step=2)
        profiler.start()
        loop(profiler, 4)
    assert not profiler.recordings


def test_on_trace_ready_is_called_after_a_recording_is_written(log: list[Any]) -> None:
    seen: list[Any] = []
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with Profiler(schedule=plan, on_trace_ready=lambda profiler: seen.append(profiler.recordings[-1])) as profiler:
        loop(profiler, 5)
    assert seen == [Path("recording")] * 2
    with pytest.warns(ProfilingWarning, match="on_trace_ready value is Invalid"):
        Profiler(on_trace_ready=3, start_profile=False)  # type: ignore[arg-type]


def test_invalid_trace_handler_arguments_are_reset() -> None:
    assert tensor_board_trace_handler is tensorboard_trace_handler
    with pytest.warns(ProfilingWarning, match="Invalid parameter worker_name"):
        assert tensorboard_trace_handler("data", "w" * 226).worker_name is None
    with pytest.warns(ProfilingWarning, match="Invalid parameter dir_name"):
        assert tensorboard_trace_handler("").dir_name is None
    with pytest.warns(ProfilingWarning, match="analyse_flag is not bool"):
        assert tensorboard_trace_handler(analyse_flag=1).analyse_flag is True  # type: ignore[arg-type]
    with pytest.warns(ProfilingWarning, match="async_mode is not bool"):
        assert tensorboard_trace_handler(async_mode=1).async_mode is False  # type: ignore[arg-type]


def test_light_recorder_records_the_same_steps_without_a_framework(tmp_path: Path) -> None:
    with Profiler(start_step=2, stop_step=5, output_path=str(tmp_path), backend="light") as profiler:
        profiler.add_metadata("model", "none")
        loop(profiler, 7)
    [recording] = profiler.recordings
    assert re.fullmatch(rf".+_{os.getpid()}_\d{{17}}_ascend_ms", recording.parent.name)
    rows = (recording / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").read_text().splitlines()[1:]
    assert [row.partition(",")[0] for row in rows] == ["2", "3", "4", "5"]
    assert json.loads((recording / "profiler_metadata.json").read_text())["model"] == "none"


def test_unknown_backend_warns_and_lists_the_known_ones() -> None:
    with pytest.warns(ProfilingWarning, match="unknown profiling backend 'tensorflow'"):
        Profiler(backend="tensorflow").stop()
