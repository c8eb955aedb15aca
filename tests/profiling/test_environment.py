"""MS_PROFILER_OPTIONS: what it asks for, and every mistake in it explained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import UsageError
from paceline.profiling.environment import EnvironmentOptions, read_options, spelled, variable_for_mindspore
from paceline.profiling.launch import run
from paceline.profiling.options import AicoreMetrics, ProfilerLevel


def read(**given: Any) -> EnvironmentOptions:
    return read_options(json.dumps(given))


@pytest.mark.parametrize("start", [False, "true", 1, None])
def test_start_must_be_true(start: object) -> None:
    assert "must be true" in read(start=start).problem
    assert "'start' is missing" in read().problem


def test_text_that_is_no_object_is_explained() -> None:
    assert "is not valid JSON" in read_options("{'start': true}").problem
    assert "holds a list" in read_options("[]").problem


def test_the_guides_key_is_read_and_the_right_one_named() -> None:
    asked = read(start=True, profiler_level="Level1", aicore_metrics="Memory")
    assert (asked.options.profiler_level, asked.options.aic_metrics) == (ProfilerLevel.Level1, AicoreMetrics.Memory)
    assert asked.notes == ("key 'aicore_metrics' is now called 'aic_metrics'; read as that",)


def test_unknown_and_impossible_keys_are_explained() -> None:
    asked = read(
        start=True, outptu_path="x", schedule={"wait": 1}, profiler_level="Level7", start_step=0, backend="gpu"
    )
    text = "\n".join(asked.notes)
    for expected in (
        "key 'outptu_path' is not known and was passed over; did you mean 'output_path'?",
        "key 'schedule' was passed over: steps are chosen with start_step and stop_step here",
        "the type of profiler_level should be ProfilerLevel (one of LevelNone, Level0, Level1, Level2), but got 'Level7'",
        "start_step must be a whole number from 1, but is 0",
        "backend must be auto, mindspore or torch",
    ):
        assert expected in text
    assert not asked.problem


def test_what_mindspore_can_do_alone_is_left_to_it_in_its_own_spelling() -> None:
    asked = read(start=True, aicore_metrics="Memory", profiler_level="Level1", activities=["CPU"])
    assert asked.framework_can
    given = json.loads(variable_for_mindspore(asked))
    assert (given["start"], given["aic_metrics"], given["activities"]) == (True, "Memory", ["CPU"])
    assert not read(start=True, start_step=2).framework_can


def test_the_corrected_spelling_says_the_same_and_has_nothing_to_explain() -> None:
    asked = read(start=True, start_step=2, stop_step=5, ranks=[0], aicore_metrics="Memory", profiler_level="Level1")
    again = read_options(spelled(asked))
    assert not again.notes
    assert (again.options, again.start_step, again.stop_step, again.ranks) == (asked.options, 2, 5, (0,))


@given(
    st.text(max_size=200) | st.dictionaries(st.text(max_size=9), st.integers() | st.text(max_size=5)).map(json.dumps)
)
def test_no_text_ends_the_job(text: str) -> None:
    read_options(text)


def test_another_sitecustomize_still_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run([sys.executable, "-c", "print('the script')"], '{"start": true}') == 0
    assert capfd.readouterr().out.splitlines() == ["the other one", "the script"]


def test_the_commands_exit_code_and_its_death_are_ours() -> None:
    assert run([sys.executable, "-c", "raise SystemExit(3)"], '{"start": true}') == 3
    assert run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], '{"start": true}') == 137


def test_run_profiled_refuses_what_would_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.cli.run_profiled import run_profiled

    monkeypatch.setenv("MS_PROFILER_OPTIONS", '{"start": false}')
    with pytest.raises(UsageError, match="must be true"):
        run_profiled(["true"])


def test_importing_the_room_is_quick_and_starts_nothing() -> None:
    """No framework, no thread, none of the analysis; how long it takes is measured by benchmarks/overhead.py."""
    code = (
        "import sys, threading; before = set(sys.modules); import paceline.profiling as p; "
        "assert threading.active_count() == 1; "
        "p.Profiler, p.DynamicProfilerMonitor, p.schedule; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["paceline"]
