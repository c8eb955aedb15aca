"""The recorder in one process: what it keeps on disk, its limits, and that it leaves no hooks behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.core.errors import UsageError
from paceline.formats.recorder.tables import LogStep, SessionLog, collective_columns, step_columns
from paceline.profiling import Recorder
from paceline.recorder import append_log as recorder_log
from paceline.recorder.append_log import SegmentedLog
from paceline.recorder.identity import identify


def record(folder: Path, *, rank: int = 0, world: int = 1, steps: int = 5, job: str = "a", **options: Any) -> Recorder:
    with Recorder(folder, rank=rank, world_size=world, job=job, **options) as recorder:
        for _ in range(steps):
            recorder.step()
    return recorder


def steps_of(folder: Path) -> list[int]:
    lines = [line for log in sorted(folder.rglob("steps-*.jsonl")) for line in log.read_text().splitlines()]
    return [each["step"] for each in map(json.loads, lines) if "d" in each]


def test_only_the_last_steps_are_kept_in_two_segments(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0, steps=50) as recorder:
        for number in range(1, 1021):
            recorder.step()
            if number % 40 == 0:
                recorder.write()
    kept = steps_of(tmp_path)
    assert kept == list(range(kept[0], 1021))
    assert 50 <= len(kept) <= 100
    assert len(list(tmp_path.rglob("steps-*.jsonl"))) == 2
    assert len(list(tmp_path.rglob("summary-*.jsonl"))) == 1


def test_backlog_is_bounded_and_lost_steps_are_counted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=0, steps=100_000).start()
    with recorder._writing:  # the disk hangs
        for _ in range(20_000):
            recorder.step()
        assert len(recorder._finished) == 8192
    recorder.close()
    assert steps_of(tmp_path)[-1] == 20_000
    text = next(tmp_path.rglob("steps-*.jsonl")).read_text()
    assert f"{20_000 - 8192} steps so far could not be written in time" in text


def test_full_disk_loses_lines_and_does_not_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SegmentedLog(tmp_path, "steps", lambda number: f"head {number}\n", lines=10, size=1 << 20)
    log.append("one\n")
    log.write()

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(recorder_log.os, "write", full)
        log.append("two\n")
        log.write()
    log.append("three\n")
    log.close()
    assert (tmp_path / "steps-000001.jsonl").read_text() == "head 1\none\nthree\n"
    assert log.lost == 1


def test_phases_data_wait_and_events_are_recorded(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        for batch in recorder.data([1, 2, 3]):
            assert batch in (1, 2, 3)
            with recorder.phase("forward"), recorder.phase('odd "name"'):
                pass
            recorder.step()
        assert len(recorder.data([1, 2, 3])) == 3
    with paceline.open(tmp_path, store=tmp_path / "store") as run:
        names = run.sql("SELECT DISTINCT name FROM events ORDER BY 1").fetchall()
        [(waits, unknown)] = run.sql("SELECT count(data_wait), count(tail) FROM steps").fetchall()
    assert {"forward", 'odd "name"', "data_wait", "step 2"} <= {name for (name,) in names}
    assert (waits, unknown) == (2, 0)


def test_two_jobs_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    record(tmp_path, rank=0, world=4, steps=4, job="first")
    for rank in (0, 1):
        record(tmp_path, rank=rank, world=2, steps=9, job="second")
    with paceline.open(tmp_path, store=tmp_path / "store") as run:
        assert run.sql("SELECT rank, max(step) FROM steps GROUP BY rank ORDER BY rank").fetchall() == [(0, 9), (1, 9)]
        assert "another job (first, 4 ranks" in " ".join(map(str, run.warnings))


def test_second_run_has_its_own_directory_and_is_the_one_read(tmp_path: Path) -> None:
    first, second = record(tmp_path, steps=5), record(tmp_path, steps=3, first_step=100)
    assert first.directory != second.directory
    with paceline.open(tmp_path, store=tmp_path / "store") as run:
        assert run.sql("SELECT max(step) FROM steps").fetchall() == [(102,)]


def test_close_restores_hooks_and_stops_the_thread(tmp_path: Path) -> None:
    before = sys.excepthook, signal.getsignal(signal.SIGTERM)
    record(tmp_path)
    assert before == (sys.excepthook, signal.getsignal(signal.SIGTERM))
    assert not [thread for thread in threading.enumerate() if thread.name == "paceline-recorder"]


def test_rank_and_job_come_from_the_launcher_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PACELINE_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK_ID", "5")
    monkeypatch.setenv("RANK_SIZE", "8")
    monkeypatch.setenv("MS_SCHED_HOST", "10.0.0.1")
    monkeypatch.setenv("MS_SCHED_PORT", "8118")
    identity = identify()
    assert (identity.rank, identity.world_size, identity.job) == (5, 8, "10.0.0.1:8118")
    monkeypatch.setenv("RANK_ID", "five")
    with pytest.raises(UsageError, match="RANK_ID=five"):
        identify()


def test_import_loads_no_heavy_module_and_starts_no_thread() -> None:
    program = (
        "import sys, threading, paceline.profiling as p; p.Recorder; "
        "heavy = {'numpy', 'duckdb', 'torch', 'msgspec', 'asyncio', 'statistics', 'logging', 'socket'} & set(sys.modules); "
        "print(sorted(heavy), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] 1\n"


def test_step_parts_computed_by_hand() -> None:
    steps = [
        LogStep(7, 1000, 500, [("data_wait", 0, 100), ("forward", 100, 300)],
             [("all_reduce", "g", 100, 60, 8, 60, None), ("all_reduce", "g", 150, 150, 8, 0, None),
              ("send", "g", 400, None, 4, 5, 1)]),
    ]  # fmt: skip
    columns = step_columns(10_000, steps)
    assert (columns["start"], columns["end"]) == ([11_000], [11_500])
    assert (columns["exposed"], columns["communication"], columns["overlapped"]) == ([65], [200], [135])
    assert (columns["computing"], columns["free"], columns["data_wait"]) == ([335], [100], [100])
    assert (columns["forward_backward"], columns["tail"]) == ([300], [None])
    collectives = collective_columns(10_000, steps)
    assert collectives["sequence"] == [7_000_000, 7_000_001, 7_000_000]
    assert collectives["duration"] == [60, 150, None]


@given(st.binary(max_size=200))
def test_any_line_is_parsed_or_rejected(line: bytes) -> None:
    import msgspec

    try:
        SessionLog().add_line(line)
    except (msgspec.DecodeError, RecursionError):
        pass
