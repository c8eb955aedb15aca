"""The recording is readable after kill -9, SIGTERM, exceptions and stalls."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paceline
from support.recorder.runs import eventually

PROGRAM = Path(__file__).parents[2] / "support" / "recorder" / "small_loop.py"


def started(folder: Path, ending: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(PROGRAM), str(folder), ending], stderr=subprocess.PIPE, text=True)


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [line for log in sorted(folder.rglob("steps-*.jsonl")) for line in log.read_text().split("\n")[:-1]]
    return [json.loads(line) for line in lines]


def last_step(folder: Path) -> int:
    return max((record["step"] for record in records(folder) if "d" in record), default=0)


def read_steps(folder: Path) -> list[int]:
    with paceline.open(folder / "light", store=folder / "store") as run:
        return [row[0] for row in run.sql("SELECT step FROM steps ORDER BY step").fetchall()]


def test_log_is_readable_up_to_the_last_complete_line_after_kill_9(tmp_path: Path) -> None:
    process = started(tmp_path, "forever")
    try:
        eventually(lambda: last_step(tmp_path) > 20)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    [log] = tmp_path.rglob("steps-*.jsonl")
    last = last_step(tmp_path)
    with log.open("a") as file:
        file.write('{"step":999999,"t":1,"d":')  # as a write that was cut off leaves it
    assert read_steps(tmp_path) == list(range(2, last + 1))


def test_sigterm_flushes_and_still_terminates_the_process(tmp_path: Path) -> None:
    process = started(tmp_path, "forever")
    eventually(lambda: last_step(tmp_path) > 5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGTERM
    assert records(tmp_path)[-1]["event"] == "sigterm"
    assert len(list(tmp_path.rglob("step_trace_time.csv"))) == 1


def test_sigterm_calls_the_previously_installed_handler(tmp_path: Path) -> None:
    process = started(tmp_path, "handler")
    eventually(lambda: last_step(tmp_path) > 5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 7
    assert [record["event"] for record in records(tmp_path) if "event" in record] == ["sigterm", "closed"]


def test_uncaught_exception_is_recorded_and_still_printed(tmp_path: Path) -> None:
    process = started(tmp_path, "raise")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "ArithmeticError: the loss is nan" in errors
    assert last_step(tmp_path) == 49
    events = [record for record in records(tmp_path) if record.get("event") == "exception"]
    assert [record["text"] for record in events] == ["ArithmeticError: the loss is nan"]
    with paceline.open(tmp_path / "light", store=tmp_path / "store") as run:
        run.table("steps")
        assert "exception in step 50: ArithmeticError" in str(run.warnings[0])


def test_stall_is_dumped_while_the_step_hangs(tmp_path: Path) -> None:
    process = started(tmp_path, "hang")
    try:
        dump = eventually(lambda: [path for path in tmp_path.rglob("stall-50.txt") if path.stat().st_size > 100])[0]
        text = eventually(lambda: "wait_forever" in dump.read_text() and dump.read_text())
    finally:
        process.kill()
        process.communicate(timeout=600)
    assert "step 50 has lasted" in text
    assert "phase: forward_backward" in text
    assert last_step(tmp_path) == 49


def test_exception_inside_with_is_recorded_and_propagates(tmp_path: Path) -> None:
    from paceline.profiling import Recorder

    with pytest.raises(KeyError), Recorder(tmp_path, rank=3, world_size=8) as recorder:
        recorder.step()
        raise KeyError("gone")
    assert [record["event"] for record in records(tmp_path) if "event" in record] == ["exception", "closed"]
    assert not recorder.running
