"""`paceline collect` over real sshd: the cluster tree, unreachable hosts, kill -9, passwords that do not leak."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.collect.layout import device_pattern, map_device_files, map_unchanged
from paceline.storage.stored_file import StoredFile
from support.collect.clusters import simulated, spread, tables_of, write_accounts
from support.storage.faults import StallingProxy
from support.storage.servers import PACELINE, SshHost, make_home, paceline
from support.storage.trees import content

COUNTS = ("steps", "collectives", "transfers", "kernels", "events", "ranks")


@pytest.fixture
def cluster(hosts: list[SshHost], tmp_path: Path) -> Iterator[Path]:
    """Four ranks on two hosts, a directory per device; returns the original tree."""
    whole = simulated(tmp_path / "whole", "mindinsight-r13")
    spread(whole, [hosts[0].files, hosts[1].files])
    table = next(path for path in whole.glob("*.json") if not path.name.startswith("."))
    text = table.read_text().replace("10.0.0.1", hosts[0].address).replace("10.0.0.2", hosts[1].address)
    table.write_text(text)
    (whole / "host_ips_mapping.txt").write_text(f"{hosts[0].address} 1\n{hosts[1].address} 2\n")
    yield whole
    for host in hosts:
        subprocess.run(["find", str(host.files), "-mindepth", "1", "-delete"], check=True)


def table_of(cluster: Path) -> Path:
    return next(path for path in cluster.glob("*.json") if not path.name.startswith("."))


def six(cluster: Path, accounts: Path, out: Path, hosts: list[SshHost]) -> list[object]:
    """The arguments of msadvisor's script, in its order."""
    return ["collect", table_of(cluster), accounts, out, hosts[0].summary, "device", "data"]


def accounts_of(hosts: list[SshHost], path: Path, **ports: int) -> Path:
    return write_accounts(path, {host.address: {"user": "root", "port": host.port} for host in hosts})


def env() -> dict[str, str]:
    return {name: os.environ[name] for name in ("HOME", "PACELINE_CACHE")}


def test_msadvisors_six_arguments_give_the_tree_readers_expect(
    hosts: list[SshHost], cluster: Path, tmp_path: Path
) -> None:
    accounts, out = accounts_of(hosts[:2], tmp_path / "accounts.json"), tmp_path / "out"
    done = paceline(*six(cluster, accounts, out, hosts), env=env())
    assert done.returncode == 0, done.stderr
    assert (out / "host_ips_mapping.txt").read_text() == f"{hosts[0].address} 1\n{hosts[1].address} 2\n"
    assert (out / "hccl.json").read_text() == table_of(cluster).read_text()
    assert content(out / "cluster_profiler") == content(cluster / "cluster_profiler")
    assert tables_of(out, tmp_path / "a") == tables_of(cluster, tmp_path / "b")


def test_hosts_from_options_with_any_number_of_devices_and_a_generated_rank_table(
    hosts: list[SshHost], cluster: Path, tmp_path: Path
) -> None:
    device = hosts[1].files / "device11" / "data" / "profiler"
    device.mkdir(parents=True)
    (device / "step_trace_raw_11_detail_time.csv").write_text("step_num\n")
    words = [word for host in hosts[:2] for word in ("--host", f"root@{host.address}:{host.port}")]
    done = paceline("collect", *words, "--path", hosts[0].summary, "-o", tmp_path / "out", env=env())
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "out" / "hccl.json").read_text())
    found = [(server["server_id"], [card["device_id"] for card in server["device"]]) for server in table["server_list"]]
    assert found == [(hosts[0].address, ["0", "1"]), (hosts[1].address, ["0", "1", "11"])]
    assert (tmp_path / "out/cluster_profiler/2/profiler/step_trace_raw_11_detail_time.csv").exists()


def test_an_unreachable_host_is_reported_and_retry_completes_it(
    hosts: list[SshHost], cluster: Path, tmp_path: Path
) -> None:
    accounts, out = accounts_of(hosts[:2], tmp_path / "accounts.json"), tmp_path / "out"
    hosts[1].stop()
    words = [*six(cluster, accounts, out, hosts), "--patience", 0.5]
    first = paceline(*words, env=env())
    assert first.returncode == 1 and "Traceback" not in first.stderr
    assert f"failed:  {hosts[1].address}" in first.stderr and f"{hosts[0].address}: " in first.stdout
    assert content(out / "cluster_profiler/1") == content(cluster / "cluster_profiler/1")
    hosts[1].start(keys=Path(os.environ["HOME"]) / ".ssh" / "id_ed25519.pub")
    hosts[0].stop()  # it is complete: a retry does not need it
    second = paceline(*words, "--retry", env=env())
    assert second.returncode == 0, second.stderr
    assert content(out / "cluster_profiler") == content(cluster / "cluster_profiler")


def test_containers_of_one_host_are_distinguished_by_their_ports(
    hosts: list[SshHost], cluster: Path, tmp_path: Path
) -> None:
    second_port = StallingProxy(hosts[0].address, hosts[0].port, 1 << 40)
    known = Path(os.environ["HOME"]) / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + hosts[0].known_at(second_port.port))
    ports, out = (hosts[0].port, second_port.port), tmp_path / "out"
    words = [word for port in ports for word in ("--host", f"root@{hosts[0].address}:{port}")]
    done = paceline("collect", *words, "--path", hosts[0].summary, "-o", out, env=env())
    second_port.close()
    assert done.returncode == 0, done.stderr
    mapping = [f"{hosts[0].address}:{port} {number}" for number, port in enumerate(ports, 1)]
    assert (out / "host_ips_mapping.txt").read_text().splitlines() == mapping
    table = json.loads((out / "hccl.json").read_text())
    assert [server["server_id"] for server in table["server_list"]] == [line.split()[0] for line in mapping]
    assert content(out / "cluster_profiler/1") == content(out / "cluster_profiler/2")
    twice = paceline("collect", *words[:2], *words[:2], "--path", "/x", "-o", tmp_path / "other", env=env())
    assert twice.returncode == 2 and "listed twice" in twice.stderr


def test_a_host_collected_alone_later_keeps_its_own_directory(
    hosts: list[SshHost], cluster: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    where = ("--path", hosts[0].summary, "-o", out, "--patience", 0.5)
    first, second = (f"root@{host.address}:{host.port}" for host in hosts[:2])
    with_a_slip = paceline("collect", "--host", first, "--host", "root@127.0.0.99:1", *where, env=env())
    assert with_a_slip.returncode == 1 and not (out / "hccl.json").exists()
    alone = paceline("collect", "--host", second, *where, "--retry", env=env())
    assert alone.returncode == 0, alone.stderr  # who was not asked for now does not fail now
    numbers = dict(line.split() for line in (out / "host_ips_mapping.txt").read_text().splitlines())
    assert set(numbers) == {hosts[0].address, hosts[1].address}
    for number, host in enumerate(hosts[:2], 1):
        place = out / "cluster_profiler" / numbers[host.address]
        assert content(place) == content(cluster / "cluster_profiler" / str(number))
    assert (out / "hccl.json").read_text().count("server_id") == 2
    (out / ".paceline-collect").write_bytes(b"\xff")  # lost: the mapping still tells whose directory is whose
    both = paceline("collect", "--host", second, "--host", first, *where, env=env())
    assert both.returncode == 0, both.stderr
    assert numbers == dict(line.split() for line in (out / "host_ips_mapping.txt").read_text().splitlines())


def test_a_killed_collect_resumes(hosts: list[SshHost], cluster: Path, tmp_path: Path) -> None:
    big = hosts[0].files / "device0/data1/profiler/big_0.json"
    big.write_bytes(secrets.token_bytes(24 << 20))
    throat = StallingProxy(hosts[0].address, hosts[0].port, 18 << 20)
    make_home(Path(os.environ["HOME"]), hosts)
    known = Path(os.environ["HOME"]) / ".ssh" / "known_hosts"
    known.write_text(known.read_text() + hosts[0].known_at(throat.port))
    out = tmp_path / "out"
    slow = write_accounts(tmp_path / "slow.json", {hosts[0].address: {"user": "root", "port": throat.port}})
    victim = subprocess.Popen([str(PACELINE), *map(str, six(cluster, slow, out, hosts))], stderr=subprocess.DEVNULL)
    assert throat.held.wait(600)
    victim.send_signal(signal.SIGKILL)
    victim.wait(600)
    throat.close()
    seen = {name for name in content(out) if not name.endswith(".paceline-part")}
    assert "cluster_profiler/1/profiler/big_0.json" not in seen  # nothing half-visible
    done = paceline(
        *six(cluster, slow, out, hosts)[:2],
        accounts_of(hosts[:1], tmp_path / "ok.json"),
        *six(cluster, slow, out, hosts)[3:],
        env=env(),
    )
    assert done.returncode == 0, done.stderr
    assert (out / "cluster_profiler/1/profiler/big_0.json").read_bytes() == big.read_bytes()
    assert not [name for name in content(out) if name.endswith(".paceline-part")]


def test_passwords_from_the_account_file_work_and_appear_nowhere(
    hosts: list[SshHost], cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, password = f"pl{secrets.token_hex(3)}", f"pw-{secrets.token_hex(12)}"
    if os.geteuid() != 0 or subprocess.run(["useradd", "-M", "-d", "/", "-s", "/bin/sh", user]).returncode:
        pytest.skip("needs root to add a user with a password")
    try:
        subprocess.run(["chpasswd"], input=f"{user}:{password}", text=True, check=True)
        for place in (hosts[0].files, *hosts[0].files.parents):
            if str(place).startswith("/tmp/"):
                place.chmod(0o755)
        monkeypatch.setenv("HOME", str(make_home(tmp_path / "stranger", hosts)))  # no key that works
        accounts = write_accounts(
            tmp_path / "accounts.json", {hosts[0].address: {"user": user, "passwd": password, "port": hosts[0].port}}
        )
        out = tmp_path / "out"
        done = paceline(*six(cluster, accounts, out, hosts), env=env())
        assert done.returncode == 0, done.stderr
        wrong = json.loads(accounts.read_text())
        wrong["cluster"][hosts[0].address]["passwd"] = "wrong-" + password
        accounts.write_text(json.dumps(wrong))
        refused = paceline(*six(cluster, accounts, tmp_path / "other", hosts), env=env())
        assert refused.returncode == 1 and "login refused" in refused.stderr
        written = b"".join(content(out).values()) + b"".join(content(tmp_path / "cache").values())
        for text in (done.stdout, done.stderr, refused.stdout, refused.stderr, written.decode(errors="replace")):
            assert password not in text
    finally:
        subprocess.run(["userdel", user], check=False)


def test_files_of_two_devices_with_the_same_name_are_both_kept() -> None:
    items = [
        StoredFile("device0/data/profiler/same.json", 1, "a"),
        StoredFile("device1/data/profiler/same.json", 1, "b"),
        StoredFile("device1/data/profiler-10/hccl_raw_1.csv", 1),
        StoredFile("device1/data/profiler-9/hccl_raw_1.csv", 1),
        StoredFile("device1/data/profiler/hccl_raw_1.csv", 1),
        StoredFile("device1/data/profiler/y.tmp", 1),
        StoredFile("notes/readme.txt", 1),
    ]
    layout = map_device_files(items, device_pattern("device", "./data"))
    assert layout.devices == (0, 1)
    assert layout.targets == {
        "device0/data/profiler/same.json": "profiler/same.json",
        "device1/data/profiler/same.json": "device_1/profiler/same.json",
        "device1/data/profiler-10/hccl_raw_1.csv": "profiler/hccl_raw_1.csv",
    }


def test_without_device_directories_profilers_are_placed_where_mindinsight_looks() -> None:
    items = [
        StoredFile("profiler-2021/step_trace_raw_0_detail_time.csv", 1),
        StoredFile("profiler/hccl_raw_0.csv", 1),
        StoredFile("profiler_x/hccl_raw_0.csv", 1),
        StoredFile("h_1_2026_ascend_pt/profiler_info_0.json", 1),
    ]
    assert map_unchanged(items).targets == {
        "profiler-2021/step_trace_raw_0_detail_time.csv": "profiler/step_trace_raw_0_detail_time.csv",
        "profiler/hccl_raw_0.csv": "profiler/hccl_raw_0.csv",
        "profiler_x/hccl_raw_0.csv": "profiler_x/hccl_raw_0.csv",
        "h_1_2026_ascend_pt/profiler_info_0.json": "h_1_2026_ascend_pt/profiler_info_0.json",
    }


@pytest.mark.parametrize("table", [b"#!/bin/sh", b"\xff\xfe", b'{"server_list": []}'])
def test_an_invalid_rank_table_is_an_error_before_anything_is_written(tmp_path: Path, table: bytes) -> None:
    (tmp_path / "hccl.json").write_bytes(table)
    accounts = write_accounts(tmp_path / "accounts.json", {"127.0.0.99": {"user": "root"}})
    done = paceline("collect", tmp_path / "hccl.json", accounts, tmp_path / "out", "/x", "device", "data", env=env())
    assert done.returncode == 2 and "rank table" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--key", "--known-hosts"])
def test_a_missing_key_file_is_an_error_at_once(tmp_path: Path, option: str) -> None:
    words = ("collect", "--host", "root@127.0.0.99", "--path", "/x", "-o", tmp_path / "out", option, tmp_path / "none")
    done = paceline(*words, env=env())
    assert done.returncode == 2 and "none: file not found" in done.stderr


def test_wrong_arguments_are_one_sentence(tmp_path: Path) -> None:
    for words, said in (
        (("collect", "a", "b"), "expected 1 or 6 arguments, got 2"),
        (("collect", "--host", "h h", "--path", "/x", "-o", tmp_path / "o"), "is not a host name"),
        (("collect", "--host", "h"), "--path and --into are required"),
        (("collect", "x", tmp_path / "none.json", "o", "/p", "device", "d"), "no such file"),
    ):
        done = paceline(*words, env={})
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done
