"""Rank tables: every spelling gives the same three facts per rank."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.core.rank_tables import RankTableEntry, read_rank_table
from paceline.formats.rank_table.reader import READER, read_host_names
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

RANKS = "rank, host, device"


def _write(directory: Path, table: Any, name: str = "anything.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(table))
    return path


def _servers(*servers: tuple[str, list[tuple[int, int]]], version: str = "1.0", **more: str) -> dict[str, Any]:
    return {
        "version": version,
        "server_count": str(len(servers)),
        "status": "completed",
        "server_list": [
            {
                "server_id": host,
                "host_nic_ip": "reserve",
                "device": [
                    {"device_id": str(d), "device_ip": "192.1.1.1", "rank_id": str(r), **more} for d, r in devices
                ],
            }
            for host, devices in servers
        ],
    }


@needs_fixtures
def test_the_vendors_own_table_is_read(tmp_path: Path) -> None:
    batch, parts = read_all(READER, FIXTURES / "mindinsight-tests" / "rank_table", tmp_path)
    assert [part.rank for part in parts] == [None]
    assert rows(batch, "ranks", RANKS) == [(0, "0.0.0.0", 0), (1, "0.0.0.0", 1)]


@needs_fixtures
def test_hosts_have_the_names_of_the_mapping_next_to_the_table(tmp_path: Path) -> None:
    batch, _ = read_all(READER, FIXTURES / "derived_r1.3_layout", tmp_path)
    assert rows(batch, "ranks", RANKS) == [(0, "1", 0), (1, "1", 1), (2, "2", 0), (3, "2", 1)]


def test_version_1_2_with_super_pods_is_read(tmp_path: Path) -> None:
    table = _servers(("10.0.0.1", [(0, 8)]), ("10.0.0.2", [(15, 3)]), version="1.2", super_device_id="117440512")
    table["super_pod_list"] = [{"super_pod_id": "0", "server_list": [{"server_id": "10.0.0.1"}]}]
    entries = read_rank_table(_write(tmp_path, table))
    assert entries == (RankTableEntry(3, "10.0.0.2", 15), RankTableEntry(8, "10.0.0.1", 0))


def _jobstart(*instances: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {
        "group_count": "1",
        "status": "completed",
        "group_list": [
            {
                "device_count": "4",
                "group_name": "job-trainjob",
                "instance_count": str(len(instances)),
                "instance_list": [
                    {
                        "devices": [{"device_id": str(d), "device_ip": "192.1.10.254"} for d in devices],
                        "pod_name": pod,
                        "server_id": host,
                    }
                    for pod, host, devices in instances
                ],
            }
        ],
    }


def test_modelarts_table_counts_ranks_by_the_number_of_the_pod(tmp_path: Path) -> None:
    table = _jobstart(("job-x-10", "host-b", [0, 1]), ("job-x-2", "host-a", [4, 5]))
    assert read_rank_table(_write(tmp_path, table, "jobstart_hccl.json")) == (
        RankTableEntry(0, "host-a", 4),
        RankTableEntry(1, "host-a", 5),
        RankTableEntry(2, "host-b", 0),
        RankTableEntry(3, "host-b", 1),
    )


def test_modelarts_table_counts_ranks_by_the_rank_of_the_instance_without_pods(tmp_path: Path) -> None:
    table = _jobstart(("", "host-b", [0, 1]), ("", "host-a", [0, 1]))
    instances = table["group_list"][0]["instance_list"]
    instances[0]["rank_id"], instances[1]["rank_id"] = "1", "0"
    assert [entry.host for entry in read_rank_table(_write(tmp_path, table))] == [
        "host-a",
        "host-a",
        "host-b",
        "host-b",
    ]


def test_old_table_of_single_devices_keeps_its_own_ranks(tmp_path: Path) -> None:
    table = _jobstart(("", "host-a", [0]), ("", "host-a", [1]))
    for rank, instance in enumerate(table["group_list"][0]["instance_list"]):
        instance["rank_id"] = str(8 + rank)
    assert read_rank_table(_write(tmp_path, table)) == (RankTableEntry(8, "host-a", 0), RankTableEntry(9, "host-a", 1))


@pytest.mark.parametrize(
    "content",
    [
        '{"server_list": [',
        '{"server_list": 5}',
        '{"server_list": []}',
        '{"server_list": [{"server_id": "a", "device": [{"device_id": "0"}]}]}',
        '{"server_list": [{"server_id": "a", "device": [{"device_id": "0", "rank_id": "x"}]}]}',
        '{"server_count": "1", "status": "initializing"}',
        '{"server_list": ' + "[" * 5000,
    ],
)
def test_damaged_table_becomes_one_warning(tmp_path: Path, content: str) -> None:
    (tmp_path / "hccl.json").write_text(content)
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "ranks") == []
    assert [warning.file for warning in batch.warnings] == ["hccl.json"]


def test_a_rank_given_twice_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, _servers(("a", [(0, 0)]), ("b", [(0, 0)])))
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert "one rank to two devices" in str(batch.warnings[0])


def test_other_json_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('[{"name": "\\"server_list\\""}]')
    (tmp_path / "settings.json").write_text('{"status": "completed"}')
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert list(READER.find(walk(tmp_path))) == []


def test_mapping_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host_ips_mapping.txt").write_bytes(b"10.0.0.1 \xff")
    with pytest.raises(FormatError):
        read_host_names(tmp_path / "host_ips_mapping.txt")


def test_mapping_ignores_lines_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "host_ips_mapping.txt").write_text("10.0.0.1 one\n\nlonely\n10.0.0.2\ttwo trailing\n")
    assert read_host_names(tmp_path / "host_ips_mapping.txt") == {"10.0.0.1": "one", "10.0.0.2": "two"}


def test_sections_can_go_to_another_process(tmp_path: Path) -> None:
    _write(tmp_path, _servers(("a", [(0, 0)])))
    [part] = READER.find(walk(tmp_path))
    again = pickle.loads(pickle.dumps(part)).sections[0].read
    assert (again.func, again.args) == (part.sections[0].read.func, part.sections[0].read.args)  # type: ignore[attr-defined]


@given(places=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 15)), min_size=1, max_size=40, unique=True))
@settings(max_examples=50, deadline=None)
def test_every_device_of_a_table_comes_back_once(tmp_path_factory: pytest.TempPathFactory, places: list[Any]) -> None:
    servers = {host: [] for host, _ in places}  # type: dict[str, list[tuple[int, int]]]
    for rank, (host, device) in enumerate(places):
        servers[host].append((device, rank))
    path = _write(tmp_path_factory.mktemp("table"), _servers(*servers.items()))
    assert read_rank_table(path) == tuple(
        RankTableEntry(rank, host, device) for rank, (host, device) in enumerate(places)
    )
