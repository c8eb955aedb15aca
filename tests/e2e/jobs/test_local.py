"""Jobs on this machine: they outlive the command, can be found again, stopped, and say how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.jobs import JobHandle, JobPhase, backend_for, load_job, submit, wait
from paceline.jobs.detached_process import DetachedProcess
from paceline.jobs.job_registry import find_record, list_records, save_record
from paceline.jobs.job_state import read_process
from support.jobs.workloads import write_job
from support.storage.servers import PACELINE, clean_environment, paceline


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + 600
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def process_of(handle: JobHandle, name: str = "job") -> DetachedProcess:
    found = read_process(Path(handle.directory), name)
    assert found is not None
    return found


def test_ctrl_c_detaches_and_another_shell_follows_lists_and_stops(tmp_path: Path) -> None:
    job = write_job(tmp_path, nodes=2, hyperparameters={"wait_for": str(tmp_path / "gate")})
    shell = subprocess.Popen(
        [PACELINE, "job", "submit", job, "--into", "job7", "--every", "0.05"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = tmp_path / "job7" / "log" / "local-job-job7-worker-1.log"
    until(lambda: log.exists() and "step 0" in log.read_text())
    os.killpg(shell.pid, signal.SIGINT)  # as a terminal does: to everything in the foreground
    _, said = shell.communicate(timeout=600)
    assert shell.returncode == 130
    assert "the job keeps running" in said and "paceline job follow job7" in said and "paceline job stop job7" in said
    assert paceline("job", "status", "job7", env={}, cwd=tmp_path).stdout.startswith("job7: running")
    (tmp_path / "gate").touch()
    done = paceline("job", "follow", "job7", "--every", 0.05, env={}, cwd=tmp_path)
    assert done.returncode == 0 and "[worker 1] [rank 3] rank 3 step 1" in done.stdout
    listed = json.loads(paceline("job", "list", "--json", env={}, cwd=tmp_path).stdout)
    assert [(row["id"], row["status"]["phase"]) for row in listed] == [("job7", "completed")]
    again = paceline("job", "logs", "job7", "--worker", 0, env={}, cwd=tmp_path)
    assert "[rank 0] rank 0 step 0 of GLOG_v=None" in again.stdout.splitlines() and "rank 3" not in again.stdout


def test_stop_ends_every_process_and_keeps_logs(tmp_path: Path) -> None:
    handle = submit(load_job(write_job(tmp_path, nodes=2, hyperparameters={"wait_for": "never"})))
    backend = backend_for(handle)
    until(lambda: sum("step 0" in piece.text for piece in backend.sync_logs(handle)))
    processes = [process_of(handle, name) for name in ("job", "worker-0", "worker-1")]
    backend.stop(handle)
    assert backend.status(handle).phase is JobPhase.stopped
    assert not any(process.alive for process in processes)
    assert wait(handle, interval=0.05).status.phase is JobPhase.stopped


def test_a_failed_node_ends_the_others_and_is_named(tmp_path: Path) -> None:
    keys = {"nodes": 2, "hyperparameters": {"fail": 3, "wait_for": ""}}
    outcome = wait(submit(load_job(write_job(tmp_path, **keys))), interval=0.05)
    assert outcome.status.phase is JobPhase.failed and outcome.status.reason == "worker-1: exit code 3"


def test_nodes_in_single_server_mode_are_each_alone(tmp_path: Path) -> None:
    outcome = wait(submit(load_job(write_job(tmp_path, nodes=2, single_server_mode=True))), interval=0.05)
    assert outcome.succeeded
    assert ["rank 1 step 0" in Path(log).read_text() for log in outcome.logs] == [True, True]


def test_a_keeper_that_is_killed_is_noticed_and_what_it_left_can_be_stopped(tmp_path: Path) -> None:
    handle = submit(load_job(write_job(tmp_path, hyperparameters={"wait_for": "never"})))
    backend = backend_for(handle)
    until(lambda: sum("step 0" in piece.text for piece in backend.sync_logs(handle)))
    process_of(handle).send(signal.SIGKILL)
    until(lambda: backend.status(handle).phase is JobPhase.lost)
    left = process_of(handle, "worker-0")
    assert left.alive and "its ranks still run" in backend.status(handle).reason
    backend.stop(handle)
    assert not left.alive and backend.status(handle).phase is JobPhase.stopped


def test_code_edited_later_does_not_reach_the_job(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = load_job(write_job(tmp_path, hyperparameters={"wait_for": str(gate)}))
    (tmp_path / "code" / "__pycache__").mkdir()
    (tmp_path / "code" / "__pycache__" / "train.pyc").write_bytes(b"old")
    handle = submit(job)
    (tmp_path / "code" / "train.py").write_text("raise SystemExit(9)")
    gate.touch()
    assert wait(handle, interval=0.05).succeeded
    assert [path.name for path in (Path(handle.directory) / "code").iterdir() if path.name != "__pycache__"] == [
        "train.py"
    ]


def test_a_job_that_writes_nothing_says_so_where_results_were_wanted(tmp_path: Path) -> None:
    done = paceline("job", "submit", write_job(tmp_path, code="print('hello')"), "--every", 0.05, env={}, cwd=tmp_path)
    assert done.returncode == 0 and "no matching output found" in done.stderr
    done = paceline("job", "submit", tmp_path / "job.yaml", "--every", 0.05, "--fetch", "all", env={}, cwd=tmp_path)
    assert done.returncode == 1 and "check that the script writes to --train_url" in done.stderr


def test_names_are_matched_exactly_and_never_guessed(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path))
    for number in (1, 2):
        handle = JobHandle(
            id=f"quick-{number}",
            name=f"quick-{number}",
            backend="local",
            remote_id=f"quick-{number}",
            job=job,
            directory=str(tmp_path / str(number)),
            submitted=float(number),
        )
        save_record(handle)
    assert find_record("quick-1").handle.id == "quick-1"
    with pytest.raises(UsageError, match="2 jobs have this name"):
        find_record("quick")
    with pytest.raises(UsageError, match="job not found") as error:
        find_record("quick-3")
    assert error.value.hint and "quick-" in error.value.hint
    (tmp_path / "state" / "jobs" / "torn.json").write_text('{"handle": {')
    assert [record.handle.id for record in list_records()] == ["quick-2", "quick-1"]


def test_a_directory_that_is_in_use_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "job7").mkdir()
    (tmp_path / "job7" / "mine.txt").write_text("mine")
    job = load_job(write_job(tmp_path))
    with pytest.raises(UsageError, match="already exists"):
        submit(job, tmp_path / "job7")
    assert wait(submit(job, tmp_path / "a job of mine"), interval=0.05).succeeded
    with pytest.raises(UsageError, match="a job named a job of mine already exists"):
        submit(job, tmp_path / "elsewhere" / "a job of mine")


def test_a_submission_that_is_killed_leaves_a_job_that_can_be_found_or_none(tmp_path: Path) -> None:
    """Killed at any moment: what was started is in the list, and ends."""
    gate = tmp_path / "gate"
    job = write_job(tmp_path, ranks=1, hyperparameters={"wait_for": str(gate)})
    for number in range(3):
        shell = subprocess.Popen(
            [PACELINE, "job", "submit", job, "--into", f"job{number}", "--detach"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        sign = tmp_path / f"job{number}" / ("plan.json", "state", "state/job.process")[number]
        until(lambda shell=shell, sign=sign: sign.exists() or shell.poll() is not None)  # type: ignore[misc]
        shell.kill()
        shell.wait()
    gate.touch()
    known = {record.handle.id: record.handle for record in list_records()}
    for number in range(3):
        if (tmp_path / f"job{number}" / "state" / "job.process").exists():
            assert wait(known[f"job{number}"], interval=0.05).succeeded
