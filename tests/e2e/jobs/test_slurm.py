"""Slurm itself, two nodes on loopback: failures, stops, and what it forgets."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest

from paceline.core.errors import UsageError
from paceline.jobs import JobHandle, JobPhase, backend_for, load_job, submit, wait
from paceline.jobs.job_plan import make_job_plan
from paceline.jobs.slurm import sbatch_options
from paceline.storage.store_errors import TransientError
from support.jobs.slurm_cluster import SlurmCluster
from support.jobs.workloads import write_job


def started(tmp_path: Path, **keys: object) -> JobHandle:
    return submit(load_job(write_job(tmp_path, backend="slurm", **keys)))


def test_a_failed_node_is_named_and_its_log_is_here(tmp_path: Path, slurm: SlurmCluster) -> None:
    outcome = wait(started(tmp_path, nodes=2, hyperparameters={"fail": 2}), interval=0.1)
    assert outcome.status.phase is JobPhase.failed and outcome.status.detail == "FAILED"
    assert outcome.status.reason == "worker-1: exit code 3"
    assert "rank 2 step 0" in Path(outcome.logs[1]).read_text()


def test_a_job_is_stopped_only_if_it_is_the_one_that_was_meant(tmp_path: Path, slurm: SlurmCluster) -> None:
    handle = started(tmp_path, hyperparameters={"wait_for": "never"})
    backend = backend_for(handle)
    limit = time.monotonic() + 600
    while not any("step 0" in piece.text for piece in backend.sync_logs(handle)):
        assert time.monotonic() < limit
        time.sleep(0.1)
    other = msgspec.structs.replace(handle, name="somebody-elses")
    with pytest.raises(UsageError, match="not stopped"):
        backend.stop(other)
    assert backend.status(handle).phase is JobPhase.running
    backend.stop(handle)
    assert wait(handle, interval=0.1).status.phase is JobPhase.stopped


def test_what_slurm_forgets_or_cannot_tell_is_not_guessed(
    tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submit(load_job(write_job(tmp_path, backend="slurm")), tmp_path / "a job of mine")
    assert wait(handle, interval=0.1).succeeded
    forgotten = msgspec.structs.replace(handle, remote_id="999999")
    assert backend_for(handle).status(forgotten).phase is JobPhase.completed, "by what it wrote itself"
    elsewhere = tmp_path / "slurm.conf"
    config = Path(slurm.environment["SLURM_CONF"]).read_text()
    elsewhere.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=9\nMessageTimeout=1", config))
    elsewhere.with_name("cgroup.conf").write_text("")
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    with pytest.raises(TransientError):
        backend_for(handle).status(handle)


CORES = "import os\nos.write(1, f\"rank {os.environ['RANK']} has {sorted(os.sched_getaffinity(0))}\\n\".encode())\n"


def test_ranks_get_the_cores_they_ask_for(tmp_path: Path, slurm: SlurmCluster) -> None:
    """With task/affinity, as sites run Slurm: what is not asked for is not there."""
    wanted = {"cpus_per_task": 1, "partition": "tests", "time_limit": "5"}
    handle = started(tmp_path, code=CORES, nodes=2, ranks=2, slurm=wanted)
    shown = slurm.ask("scontrol", "show", "job", handle.remote_id)
    assert re.search(r"NumCPUs=4 NumTasks=4 CPUs/Task=1", shown) and "TimeLimit=00:05:00" in shown, shown
    assert wait(handle, interval=0.1).succeeded
    logs = "".join((handle.logs / handle.log_name(node)).read_text() for node in (0, 1))
    assert sorted(re.findall(r"rank \d has .*", logs)) == [f"rank {rank} has [0, 1]" for rank in range(4)]
    alone = started(tmp_path / "alone", code=CORES, nodes=2, ranks=1, slurm={"exclusive": True})
    assert wait(alone, interval=0.1).succeeded
    assert "rank 1 has [0, 1]" in (alone.logs / alone.log_name(1)).read_text()


def test_a_site_gets_the_options_it_wants(tmp_path: Path) -> None:
    wanted = {
        "account": "team",
        "qos": "high",
        "partition": "npu",
        "time_limit": "1-0",
        "gres": "npu:8",
        "gpus_per_node": 8,
        "exclusive": True,
        "cpus_per_task": 24,
        "options": ["--comment=x"],
    }
    job = load_job(write_job(tmp_path, backend="slurm", ranks=8, slurm=wanted))
    options = sbatch_options(make_job_plan(job, "job7", tmp_path / "job7"))
    assert {
        "--ntasks-per-node=8",
        "--cpus-per-task=24",
        "--account=team",
        "--qos=high",
        "--partition=npu",
        "--time=1-0",
        "--gres=npu:8",
        "--gpus-per-node=8",
        "--exclusive",
        "--comment=x",
    } <= set(options)
