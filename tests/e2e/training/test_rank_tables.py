"""Rank tables: write, read, merge, convert, check, wait for the platform's table."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.cli.main import application
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.rank_tables import (
    RankTableEntry,
    check_rank_table,
    generate_rank_table,
    merge_rank_tables,
    rank_table_json,
    read_rank_table,
)
from paceline.training.launcher.rank_placement import Nodes, place_by_table, wait_for_table


def _platform(status: str, *pods: tuple[int, str, list[int]]) -> dict[str, Any]:
    """ModelArts' jobstart_hccl.json."""
    return {
        "group_count": "1",
        "status": status,
        "group_list": [
            {
                "device_count": "2",
                "group_name": "job-trainjob",
                "instance_count": str(len(pods)),
                "instance_list": [
                    {
                        "pod_name": f"jobabc-job-trainjob-{number}",
                        "server_id": host,
                        "devices": [{"device_id": str(d), "device_ip": f"192.1.{number}.{d}"} for d in devices],
                    }
                    for number, host, devices in pods
                ],
            }
        ],
    }


def test_ranks_count_through_hosts_and_devices(tmp_path: Path) -> None:
    entries = generate_rank_table([("10.0.0.1", [0, 1]), ("10.0.0.2", [4])], ["1.1.1.1", "1.1.1.2", "1.1.1.3"])
    path = tmp_path / "table.json"
    path.write_text(rank_table_json(entries))
    table = json.loads(path.read_text())
    assert (table["version"], table["server_count"], table["status"]) == ("1.0", "2", "completed")
    assert table["server_list"][1] == {
        "server_id": "10.0.0.2",
        "host_nic_ip": "reserve",
        "device": [{"device_id": "4", "device_ip": "1.1.1.3", "rank_id": "2"}],
    }
    assert read_rank_table(path) == entries


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9.]{1,12}", fullmatch=True),
        st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True),
        min_size=1,
        max_size=5,
    )
)
def test_any_table_survives_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, hosts: dict[str, list[int]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.json"
    entries = generate_rank_table(hosts.items())
    path.write_text(rank_table_json(entries))
    assert read_rank_table(path) == entries


def test_merged_tables_are_renumbered_in_the_order_given() -> None:
    first, second = generate_rank_table([("b", [0, 1])], ["x", "y"]), generate_rank_table([("a", [0, 1])])
    assert [(entry.rank, entry.host, entry.address) for entry in merge_rank_tables([first, second])] == [
        (0, "b", "x"),
        (1, "b", "y"),
        (2, "a", ""),
        (3, "a", ""),
    ]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([RankTableEntry(0, "a", 0), RankTableEntry(2, "a", 1)], "ranks are not 0 … 1"),
        ([RankTableEntry(0, "a", 0), RankTableEntry(1, "a", 0)], "two ranks on device 0 of host a"),
        ([RankTableEntry(0, "a", None)], "rank 0 has no host or no device"),
    ],
)
def test_an_invalid_table_is_refused(entries: list[RankTableEntry], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_rank_table(entries, "t.json")


def test_a_wrong_number_of_addresses_is_refused() -> None:
    with pytest.raises(UsageError, match="1 device addresses for 2 devices"):
        generate_rank_table([("a", [0, 1])], ["1.1.1.1"])


def test_the_platforms_table_is_waited_for_and_sorted_by_pod(tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    path.write_text('{"group_list": [')  # still being written
    done = _platform("completed", (10, "h10", [0]), (2, "h2", [0, 1]))
    seen = threading.Event()

    def come() -> None:
        path.write_text(json.dumps(_platform("initializing", (2, "h2", [0, 1]))))
        seen.wait(0.3)
        path.write_text(json.dumps(done))

    thread = threading.Thread(target=come)
    thread.start()
    entries = wait_for_table(path, 600)
    thread.join()
    assert [(e.rank, e.host, e.device, e.address) for e in entries] == [
        (0, "h2", 0, "192.1.2.0"),
        (1, "h2", 1, "192.1.2.1"),
        (2, "h10", 0, "192.1.10.0"),
    ]


def test_waiting_for_a_table_times_out(tmp_path: Path) -> None:
    path = tmp_path / "jobstart_hccl.json"
    path.write_text(json.dumps(_platform("initializing", (0, "h", [0]))))
    with pytest.raises(PacelineError, match="its status is not completed"):
        wait_for_table(path, 0.05)
    with pytest.raises(PacelineError, match="file not found"):
        wait_for_table(tmp_path / "nothing.json", 0.05)


def test_a_host_finds_its_ranks_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(rank_table_json(generate_rank_table([("10.0.0.1", [0, 1]), ("10.0.0.2", [6, 7])])))
    placement = place_by_table(path, Nodes(rank=1), named=True)
    assert [(each.rank, each.local_rank, each.device) for each in placement.here] == [(2, 0, 6), (3, 1, 7)]
    assert (placement.world_size, placement.node, placement.master_address) == (4, 1, "10.0.0.1")
    with pytest.raises(UsageError, match="none or several of its 2 hosts match this machine"):
        place_by_table(path, Nodes(), named=False)


def test_commands_make_merge_convert_and_check(tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(application(["rank-table"]), ["rank-table", *words])

    conf = tmp_path / "hccn.conf"
    conf.write_text("address_0=192.168.1.10\nnetmask_0=255.255.255.0\naddress_1=192.168.1.11\n")
    one, two, all_ = (str(tmp_path / name) for name in ("1.json", "2.json", "all.json"))
    assert (
        run("generate", "--host", "10.0.0.1", "--devices", "[0,2)", "--hccn-conf", str(conf), "-o", one).exit_code == 0
    )
    assert run("generate", "--host", "10.0.0.2=0,1", "-o", two).exit_code == 0
    assert run("merge", one, two, "-o", all_).exit_code == 0
    told = run("check", all_)
    assert "4 ranks on 2 hosts" in told.stdout and "10.0.0.2: ranks 2–3, devices 0, 1" in told.stdout
    assert read_rank_table(Path(all_))[1].address == "192.168.1.11"
    (tmp_path / "jobstart_hccl.json").write_text(json.dumps(_platform("completed", (0, "h", [4]))))
    converted = json.loads(run("convert", str(tmp_path)).stdout)
    assert converted["server_list"][0]["device"] == [{"device_id": "4", "device_ip": "192.1.0.4", "rank_id": "0"}]
    assert isinstance(run("generate", "--host", "a", "--devices", "0..7").exception, UsageError)
    assert isinstance(run("check", str(tmp_path / "none.json")).exception, UsageError)
