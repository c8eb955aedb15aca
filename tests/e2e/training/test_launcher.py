"""Launcher: one process per card, stopped together; failures, signals, exit codes, no orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.training.launcher.launch_plan import LaunchPlan
from paceline.training.launcher.launcher import place_ranks
from paceline.training.launcher.rank_environment import Framework
from paceline.training.launcher.rank_placement import Nodes, rendezvous_from_env
from support.storage.fixtures import hosts, own_places, ssh_hosts
from support.storage.servers import SshHost
from support.training.launching import eventually, groups, launcher, runs, script

__all__ = ["hosts", "own_places", "ssh_hosts"]


def test_every_rank_gets_its_environment_and_its_log(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "4", str(script(tmp_path)), "env", "--epochs", "3")
    out, _ = job.communicate(timeout=600)
    assert job.returncode == 0
    assert out == "rank 0 says env\n"
    env = [json.loads((tmp_path / f"env_{rank}.json").read_text()) for rank in range(4)]
    for rank in range(4):
        assert (tmp_path / "log" / f"rank_{rank}" / "output.log").read_text() == f"rank {rank} says env\n"
        names = (
            "RANK",
            "LOCAL_RANK",
            "RANK_ID",
            "DEVICE_ID",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
            "RANK_SIZE",
            "MASTER_ADDR",
        )
        assert [env[rank][name] for name in names] == [*[str(rank)] * 4, "4", "4", "4", "127.0.0.1"]
    assert len({(each["MASTER_PORT"], each["PACELINE_RUN_ID"]) for each in env}) == 1


def test_the_first_failure_stops_all_and_is_shown(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "4", str(script(tmp_path)), "fail")
    _, told = job.communicate(timeout=600)
    assert job.returncode == 7
    assert "rank 2 failed after" in told and "exit code 7; stopping 3 others" in told
    assert "log/rank_2/output.log" in told and "| RuntimeError: no card" in told
    assert not any(runs(group) for group in groups(tmp_path, 4))


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "4", str(script(tmp_path)), "killed")
    _, told = job.communicate(timeout=600)
    assert job.returncode == 128 + signal.SIGKILL
    assert "rank 1 failed" in told and "killed by SIGKILL (out of memory?" in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_every_rank_once_and_decide_the_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    job = launcher(tmp_path, "--ranks", "2", str(script(tmp_path)), "polite")
    eventually(lambda: all((tmp_path / f"ready_{rank}").exists() for rank in range(2)))
    job.send_signal(number)
    _, told = job.communicate(timeout=600)
    assert job.returncode == 128 + number
    assert f"{number.name}; stopping 2 ranks" in told
    assert [(tmp_path / f"left_{rank}").read_text() for rank in range(2)] == [str(int(number))] * 2


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_period(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "2", "--grace", "0.2", str(script(tmp_path)), "deaf")
    eventually(lambda: all((tmp_path / f"ready_{rank}").exists() for rank in range(2)))
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=600)
    assert job.returncode == 128 + signal.SIGTERM
    assert not any(runs(group) for group in groups(tmp_path, 2))


def test_a_killed_launcher_leaves_no_orphans_nor_their_children(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "2", "--grace", "0.2", str(script(tmp_path)), "children")
    started = groups(tmp_path, 2)
    assert all(runs(group) for group in started)
    job.kill()
    job.communicate(timeout=600)
    eventually(lambda: not any(runs(group) for group in started))


def test_logs_of_an_earlier_start_are_kept(tmp_path: Path) -> None:
    for _ in range(2):
        launcher(tmp_path, "--ranks", "1", str(script(tmp_path)), "env").communicate(timeout=600)
    assert (tmp_path / "log" / "rank_0" / "output.log").read_text() == "rank 0 says env\n" * 2


def test_two_nodes_started_separately_are_one_job(tmp_path: Path) -> None:
    path = script(tmp_path)
    words = ["--ranks", "2", "--nodes", "2", "--master-addr", "127.0.0.1", "--master-port", "29876"]
    jobs = [launcher(tmp_path, *words, "--node-rank", str(node), str(path), "env") for node in range(2)]
    assert [job.communicate(timeout=600)[0] for job in jobs] == ["rank 0 says env\n", "rank 2 says env\n"]
    env = [json.loads((tmp_path / f"env_{rank}.json").read_text()) for rank in range(4)]
    assert [(each["RANK"], each["LOCAL_RANK"], each["GROUP_RANK"]) for each in env] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    assert {(each["WORLD_SIZE"], each["MASTER_ADDR"], each["MASTER_PORT"]) for each in env} == {
        ("4", "127.0.0.1", "29876")
    }


def test_hosts_over_ssh_are_one_job_and_end_together(tmp_path: Path, hosts: list[SshHost]) -> None:
    names = ",".join(f"root@{host.address}:{host.port}" for host in hosts[:2])
    path = script(tmp_path)
    job = launcher(tmp_path, "--ranks", "2", "--hosts", names, "--show", "all", str(path), "env")
    out, told = job.communicate(timeout=600)
    assert job.returncode == 0, told
    assert sorted(out.splitlines()) == sorted(
        f"[{hosts[rank // 2].address}] [rank {rank}] rank {rank} says env" for rank in range(4)
    )
    env = [json.loads((tmp_path / f"env_{rank}.json").read_text()) for rank in range(4)]
    assert {(each["WORLD_SIZE"], each["MASTER_ADDR"]) for each in env} == {("4", hosts[0].address)}
    assert len({each["PACELINE_RUN_ID"] for each in env}) == 1

    for pid in tmp_path.glob("pid_*"):
        pid.unlink()
    job = launcher(tmp_path, "--ranks", "2", "--grace", "1", "--hosts", names, str(path), "fail")
    _, told = job.communicate(timeout=600)
    assert job.returncode == 7
    assert f"[{hosts[1].address}] paceline: rank 2 failed" in told and "no card" in told
    assert not any(runs(group) for group in groups(tmp_path, 4))


def test_an_unknown_host_is_refused(tmp_path: Path, hosts: list[SshHost], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "stranger"))
    name = f"root@{hosts[0].address}:{hosts[0].port}"
    job = launcher(tmp_path, "--ranks", "1", "--hosts", name, str(script(tmp_path)), "env")
    _, told = job.communicate(timeout=600)
    assert job.returncode == 1
    assert "the host key is not in known_hosts" in told


def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    job = launcher(tmp_path, "--ranks", "2", "/no/such/program")
    _, told = job.communicate(timeout=600)
    assert job.returncode == 2
    assert "could not start /no/such/program: No such file or directory" in told


# -- ModelArts ---------------------------------------------------------------------------------------------------------

PLATFORM = {
    "MA_NUM_HOSTS": "2",
    "MA_NUM_GPUS": "8",
    "VC_TASK_INDEX": "1",
    "VC_WORKER_NUM": "2",
    "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job",
}


def test_nodes_and_cards_from_modelarts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLATFORM.items():
        monkeypatch.setenv(name, value)
    placement, table = place_ranks(LaunchPlan(("train.py",)))
    assert [each.rank for each in placement.here] == list(range(8, 16))
    assert (placement.world_size, placement.master_address, placement.master_port) == (16, "job-worker-0.job", 29500)
    assert table is None


def test_on_modelarts_mindspore_gets_a_table_of_version_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.mkdir()
    pods = [
        {
            "pod_name": f"job-{number}",
            "server_id": f"10.0.0.{number}",
            "devices": [{"device_id": str(d), "device_ip": ""} for d in range(8)],
        }
        for number in (1, 0)
    ]
    (config / "jobstart_hccl.json").write_text(
        json.dumps({"status": "completed", "group_list": [{"instance_list": pods}]})
    )
    for name, value in {**PLATFORM, "RANK_TABLE_FILE": str(config)}.items():
        monkeypatch.setenv(name, value)
    placement, table = place_ranks(LaunchPlan(("train.py",), framework=Framework.mindspore, log_dir=tmp_path / "log"))
    assert [each.rank for each in placement.here] == list(range(8, 16))
    assert table is not None and json.loads(table.read_text())["server_list"][0]["server_id"] == "10.0.0.0"


def test_on_modelarts_the_boot_command_is_paceline_train(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "paceline", "train", "--use_parallel", "True", "--only_save_strategy", "True"]
    platform = {"MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2", "VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "localhost"}
    job = subprocess.run(
        [*words, "--output_dir", "out"],
        cwd=tmp_path,
        env={**os.environ, **platform},
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    found = sorted(path.name for path in (tmp_path / "out" / "strategy").iterdir())
    assert found == ["ckpt_strategy_rank_0.ckpt", "ckpt_strategy_rank_1.ckpt"]
    # The first card, which logs the losses, prints to the console; all write their logs.
    assert "ckpt_strategy_rank_0.ckpt written" in job.stdout
    assert "ckpt_strategy_rank_0.ckpt written" in (tmp_path / "out" / "log" / "rank_0" / "info.log").read_text()


def test_rendezvous_of_ranks_started_by_the_platform() -> None:
    environ = {"RANK_ID": "9", **PLATFORM}
    rendezvous_from_env(environ)
    assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == ("job-worker-0.job", "29500")
    with pytest.raises(UsageError, match="MASTER_ADDR is not set"):
        rendezvous_from_env({"RANK_ID": "1"})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (LaunchPlan(("x",), 8, nodes=Nodes(2, 0)), "several nodes need --master-addr"),
        (LaunchPlan(("x",), 8, nodes=Nodes(2, 2, "a")), "node rank 2 of 2 nodes"),
    ],
)
def test_invalid_plans_are_refused(plan: LaunchPlan, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        place_ranks(plan)
