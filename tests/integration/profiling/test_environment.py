"""MS_PROFILER_OPTIONS: parsing, and a message for every mistake in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import UsageError
from paceline.profiling.environment_options import EnvironmentOptions, read_options, to_json, variable_for_mindspore
from paceline.profiling.launch import run
from paceline.profiling.options import AicoreMetrics, ProfilerLevel


def read(**given: Any) -> EnvironmentOptions:
    return read_options(json.dumps(given))


@pytest.mark.parametrize("start", [False, "true", 1, None])
def test_start_must_be_true(start: object) -> None:
    assert "must be true" in read(start=start).problem
    assert "'start' is missing" in read().problem


def test_text_that_is_not_an_object_is_reported() -> None:
    assert "is not valid JSON" in read_options("{'start': true}").problem
    assert "contains a list" in read_options("[]").problem


def test_old_key_of_the_guide_is_read_with_a_note() -> None:
    options = read(start=True, profiler_level="Level1", aicore_metrics="Memory")
    assert (options.options.profiler_level, options.options.aic_metrics) == (ProfilerLevel.Level1, AicoreMetrics.Memory)
    assert options.notes == ("key 'aicore_metrics' is now called 'aic_metrics' and was read as such",)


def test_unknown_and_unsupported_keys_are_reported() -> None:
    options = read(
        start=True, outptu_path="x", schedule={"wait": 1}, profiler_level="Level7", start_step=0, backend="gpu"
    )
    text = "\n".join(options.notes)
    for expected in (
        "unknown key 'outptu_path' was ignored; did you mean 'output_path'?",
        "key 'schedule' was ignored: choose steps with start_step and stop_step",
        "the type of profiler_level should be ProfilerLevel (one of LevelNone, Level0, Level1, Level2), but got 'Level7'",
        "start_step must be an integer of at least 1, but is 0",
        "backend must be auto, mindspore or torch",
    ):
        assert expected in text
    assert not options.problem


def test_mindspore_handles_plain_requests_itself_under_its_own_names() -> None:
    options = read(start=True, aicore_metrics="Memory", profiler_level="Level1", activities=["CPU"])
    assert options.mindspore_can_handle
    given = json.loads(variable_for_mindspore(options))
    assert (given["start"], given["aic_metrics"], given["activities"]) == (True, "Memory", ["CPU"])
    assert not read(start=True, start_step=2).mindspore_can_handle


def test_corrected_json_means_the_same_and_has_no_notes() -> None:
    options = read(start=True, start_step=2, stop_step=5, ranks=[0], aicore_metrics="Memory", profiler_level="Level1")
    again = read_options(to_json(options))
    assert not again.notes
    assert (again.options, again.start_step, again.stop_step, again.ranks) == (options.options, 2, 5, (0,))


@given(
    st.text(max_size=200) | st.dictionaries(st.text(max_size=9), st.integers() | st.text(max_size=5)).map(json.dumps)
)
def test_no_text_raises(text: str) -> None:
    read_options(text)


def test_hidden_sitecustomize_still_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run([sys.executable, "-c", "print('the script')"], '{"start": true}') == 0
    assert capfd.readouterr().out.splitlines() == ["the other one", "the script"]


def test_exit_code_and_signal_of_the_command_are_returned() -> None:
    assert run([sys.executable, "-c", "raise SystemExit(3)"], '{"start": true}') == 3
    assert run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], '{"start": true}') == 137


def test_run_profiled_rejects_options_that_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.cli.run_profiled import run_profiled

    monkeypatch.setenv("MS_PROFILER_OPTIONS", '{"start": false}')
    with pytest.raises(UsageError, match="must be true"):
        run_profiled(["true"])


def test_import_is_light_and_starts_no_thread() -> None:
    """No framework, no thread, no analysis; benchmarks/overhead.py measures the time."""
    code = (
        "import sys, threading; before = set(sys.modules); import paceline.profiling as p; "
        "assert threading.active_count() == 1; "
        "p.Profiler, p.DynamicProfilerMonitor, p.schedule; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["paceline"]
