"""Raw msprof exports: the AlexNet recording against known differences, and small trees in both layouts."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.msprof.reader import READER, _number
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

ALEXNET = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "profiler"
ORACLE = FIXTURES / "mindspore-2.10-cpu" / "oracle"


def names(pid: int, process: str, threads: dict[int, str]) -> list[dict[str, Any]]:
    return [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}}] + [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        for tid, name in threads.items()
    ]


def event(pid: int, tid: int, name: str, start: float, duration: float, **args: object) -> dict[str, Any]:
    spelled = {key.replace("_", " "): value for key, value in args.items() if key != "size"}
    if "size" in args:
        spelled["size(Byte)"] = args["size"]
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": duration, "args": spelled}


def older_export(root: Path, device: int, info: dict[str, object], hccl: list[dict[str, Any]]) -> None:
    directory = root / f"device_{device}"
    (directory / "timeline").mkdir(parents=True)
    (directory / f"info.json.{device}").write_text(json.dumps(info))
    (directory / "timeline" / f"hccl_{device}_0_1.json").write_text(json.dumps(hccl))


def collective(blank: str = "_") -> list[dict[str, Any]]:
    """One all-reduce of 100 µs: plane 1 waits 20 + 5, moves 30; plane 0 copies locally; plane 2 waits 90."""
    link = {"src_rank": 0, "dst_rank": 1, "transport_type": "SDMA", "link_type": "HCCS"}
    local = {"src_rank": 0, "dst_rank": 4294967295, "transport_type": "SDMA", "link_type": "ON_CHIP"}
    wait = {"src_rank": 0, "dst_rank": 1, "transport_type": "LOCAL", "link_type": "INVALID_TYPE", "size": 0}
    threads = {0: "Plane 0", 1: "Plane 1", 2: "Plane 2", 70000: "Communication Kernel"}
    return [
        *names(1, "HCCL", threads),
        event(1, 70000, "Default/AllReduce-op5", 1000, 100),
        event(1, 0, "Memcpy", 1000, 2, size=999, **local),
        event(1, 1, f"Notify{blank}Wait", 1000, 20, **wait),
        event(1, 1, f"Reduce{blank}Inline", 1020, 30, size=4096, **link),
        event(1, 1, f"Notify{blank}Wait", 1060, 5, **wait),
        event(1, 2, f"Notify{blank}Wait", 1000, 90, **wait),
        event(1, 2, "Memcpy", 1090, 10, size=1024, **{**link, "dst_rank": 2}),
        event(1, 1, "Memcpy", 5000, 10, size=7777, **link),
    ]


# -- real recordings -------------------------------------------------------------------------------------------------


@needs_fixtures
def test_arrivals_of_the_alexnet_recording(tmp_path: Path) -> None:
    batch, parts = read_all(READER, ALEXNET, tmp_path)
    assert [part.rank for part in parts] == [0, 1] and not batch.warnings
    arrivals = rows(batch, "collectives", "rank, step, op, sequence, start, start + duration")
    assert len(arrivals) == 20 and {row[2] for row in arrivals} == {"all_reduce"}
    by_rank = [{row[3]: row for row in arrivals if row[0] == rank} for rank in (0, 1)]
    pairs = [(by_rank[0][key], by_rank[1][key]) for key in sorted(by_rank[0])]
    assert [ours[1] for ours, _ in pairs] == [theirs[1] for _, theirs in pairs] == list(range(1, 11))
    late = [round((ours[4] - theirs[4]) / 1000) for ours, theirs in pairs]
    assert late == [9930, 1363, 315, -113, 451, 458, 328, 603, 537, -24]
    ends = [abs(ours[5] - theirs[5]) / 1000 for ours, theirs in pairs]
    assert min(ends) == pytest.approx(0.2, abs=0.05) and max(ends) == pytest.approx(88, abs=0.5)


@needs_fixtures
def test_steps_of_the_alexnet_recording_are_counted_once_and_add_up(tmp_path: Path) -> None:
    batch, _ = read_all(READER, ALEXNET, tmp_path)
    found = sorted(rows(batch, "steps", 'step, start, "end", duration, data_wait, forward_backward, tail', "rank = 0"))
    assert [row[0] for row in found] == list(range(1, 11))
    assert all(row[2] - row[1] == row[3] == sum(row[4:]) for row in found)
    assert all(after[1] == before[2] for before, after in pairwise(found))
    assert found[1][4:] == (32134950, 4269150, 11095070)
    split = rows(batch, "steps", "communication, exposed, overlapped", "rank = 0 AND step = 1")
    assert split == [(41534300, 41534300, 0)]


@needs_fixtures
def test_waits_and_links_of_the_alexnet_recording(tmp_path: Path) -> None:
    batch, _ = read_all(READER, ALEXNET, tmp_path)
    assert all(
        transit + wait <= duration and sync <= wait
        for transit, wait, sync, duration in rows(batch, "collectives", "transit, wait, sync, duration")
    )
    assert set(rows(batch, "collectives", "bytes", "rank = 0")) == {(393292032,)}
    links = rows(batch, "transfers", "src, dst, transport", "rank = 0 AND step = 2")
    assert sorted(links) == [(0, 0, "LOCAL"), (0, 1, "HCCS"), (0, 2, "HCCS"), (0, 3, "HCCS"), (0, 4, "PCIE")]
    kernels = rows(batch, "kernels", "core", "rank = 0 AND step = 2")
    assert sorted({(core, kernels.count((core,))) for (core,) in kernels}) == [
        ("AI_CORE", 137),
        ("AI_CPU", 2),
        ("COMMUNICATION", 1),
    ]


@needs_fixtures
def test_newer_layout_with_analyze_folder(tmp_path: Path) -> None:
    batch, parts = read_all(READER, ORACLE, tmp_path)
    assert len(parts) == 1 and "its rank is not recorded" in str(parts[0].notes[0])
    assert parts[0].recorded == "20260101000000000" and parts[0].job == "/host_1"
    found = rows(batch, "collectives", 'name, "group", op, start, duration, transit, wait, sync, idle, bytes')
    assert ("hcom_Receive__101_1_1", "7002", "receive", 2500000, 200000, 100000, 60000, 50000, 40000, 4000000) in found
    assert len(found) == 3
    assert len(rows(batch, "transfers")) == 6 and len(rows(batch, "packets")) == 3
    assert sorted(rows(batch, "kernels", "name, core, stream, start, duration, input_shapes")) == [
        ("MatMulV2", "AI_CORE", 5, 2100000, 300000, "16,32;32,64"),
        ("MatMulV2", "AI_CORE", 5, 3100000, 300000, "16,32;32,64"),
    ]


# -- small trees -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", ["_", " "])
def test_tasks_in_both_spellings_make_transit_wait_and_bytes(blank: str, tmp_path: Path) -> None:
    older_export(tmp_path / "run" / "PROF_000001_20230818142704322_A", 0, {"rank_id": 4}, collective(blank))
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [part.rank for part in parts] == [4] and parts[0].recorded == "20230818142704322"
    columns = "op, step, start, duration, transit, wait, sync, idle, bytes"
    assert rows(batch, "collectives", columns) == [("all_reduce", 1, 1000000, 100000, 30000, 25000, 20000, 45000, 5120)]
    assert sorted(rows(batch, "transfers", "src, dst, transport, bytes, duration, scope")) == [
        (0, 0, "LOCAL", 999, 2000, "group"), (0, 1, "HCCS", 4096, 30000, "group"), (0, 2, "HCCS", 1024, 10000, "group"),
    ]  # fmt: skip
    assert sorted(rows(batch, "packets", "transport, packet_bytes, count, duration")) == [
        ("HCCS", 1024, 1, 10000),
        ("HCCS", 4096, 1, 30000),
    ]


def test_rdma_transfer_counts_its_acknowledgement_as_transfer_and_not_as_wait(tmp_path: Path) -> None:
    rdma = {"src_rank": 0, "dst_rank": 8, "transport_type": "RDMA", "link_type": "ROCE"}
    trace = [
        *names(1, "HCCL", {0: "Plane 0", 70000: "Communication Kernel"}),
        event(1, 70000, "Default/AllReduce-op5", 0, 100),
        event(1, 0, "Notify_Wait", 0, 10, size=0, **{**rdma, "transport_type": "LOCAL"}),
        event(1, 0, "RDMASend", 10, 1, size=5000, **rdma),
        event(1, 0, "RDMASend", 11, 2, size=4, **rdma),
        event(1, 0, "Notify_Wait", 13, 40, size=0, **{**rdma, "transport_type": "LOCAL"}),
    ]
    older_export(tmp_path / "run" / "PROF_1", 0, {"rank_id": "0"}, trace)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert rows(batch, "collectives", "transit, wait, sync, bytes") == [(43000, 10000, 10000, 5004)]
    assert rows(batch, "transfers", "src, dst, transport, bytes, duration, wait") == [
        (0, 8, "RDMA", 5004, 43000, 40000)
    ]


def test_groups_keep_their_own_planes(tmp_path: Path) -> None:
    link = {"src_rank": 0, "dst_rank": 1, "transport_type": "SDMA", "link_type": "HCCS"}
    threads = {0: "Group 0 Communication", 1: "Plane 0", 5: "Group 1 Communication", 6: "Plane 0"}
    trace = [
        *names(1, "Communication", threads),
        event(1, 0, "hcom_allReduce__612_3_1", 0, 100),
        event(1, 5, "hcom_allGather__586_8_1", 0, 100),
        event(1, 1, "Memcpy", 10, 5, size=100, **link),
        event(1, 6, "Memcpy", 10, 7, size=300, **link),
    ]
    output = tmp_path / "run" / "PROF_1" / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    (output / "msprof_20260101000000.json").write_text(json.dumps(trace))
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert sorted(rows(batch, "collectives", '"group", op, sequence, transit, bytes')) == [
        ("586", "all_gather", 8, 7000, 300),
        ("612", "all_reduce", 3, 5000, 100),
    ]


def test_step_trace_csv_marks_steps(tmp_path: Path) -> None:
    output = tmp_path / "run" / "PROF_1" / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    (output / "step_trace_20260101000000.csv").write_text(
        "Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),Data Aug Bound(us)\n"
        "1,N/A,N/A,100,100,N/A\n2,130\t,180\t,200\t,72,30\n"
    )
    (output / "op_summary_20260101000000.csv").write_text(
        "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\nA,B,AI_CORE,150\t,5.5\nC,D,AI_CORE,900,1\n"
    )
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert sorted(rows(batch, "steps", 'step, start, "end", data_wait, forward_backward, tail')) == [
        (1, 0, 100000, None, None, None),
        (2, 100000, 200000, 30000, 50000, 20000),
    ]
    assert sorted(rows(batch, "kernels", "step, name, start, duration"), key=str) == [
        (2, "A", 150000, 5500),
        (None, "C", 900000, 1000),
    ]


def test_unknown_ranks_are_numbered_by_host_and_device(tmp_path: Path) -> None:
    for name, host, device in (("PROF_1", "b", 0), ("PROF_2", "a", 1), ("PROF_3", "a", 0)):
        older_export(tmp_path / "run" / name, device, {"rank_id": -1, "hostname": host}, collective())
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert {part.root: part.rank for part in parts} == {"PROF_3": 0, "PROF_2": 1, "PROF_1": 2}
    assert all("its rank is not recorded" in str(part.notes[0]) for part in parts)


def test_export_inside_a_profile_has_the_rank_of_the_profile(tmp_path: Path) -> None:
    profile = tmp_path / "run" / "host_7_20260101000000000_ascend_pt"
    older_export(profile / "PROF_000001_20260101000000123_A", 0, {"rank_id": -1}, collective())
    (profile / "profiler_info_6.json").write_text("{}")
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [(part.rank, part.recorded, part.job) for part in parts] == [(6, "20260101000000000", "/host_7")]
    assert [part.rank for part in pickle.loads(pickle.dumps(parts))] == [6]


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"\xff\xfe", b'[{"ph": "X"', b'{"traceEvents": 3}'])
def test_a_damaged_trace_is_a_warning_with_its_name(content: bytes, tmp_path: Path) -> None:
    root = tmp_path / "run" / "PROF_1"
    older_export(root, 0, {"rank_id": 0}, collective())
    (root / "device_0" / "timeline" / "msprof_0_0_1.json").write_bytes(content)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert any("msprof_0_0_1.json" in str(warning) for warning in batch.warnings)
    assert len(rows(batch, "collectives")) == 1


@pytest.mark.parametrize("content", [b"", b'[{"ph": "X"', b'[{"ph": "X", "ts": 1'])
def test_a_cut_off_iteration_leaves_the_others(content: bytes, tmp_path: Path) -> None:
    root = tmp_path / "run" / "PROF_1"
    older_export(root, 0, {"rank_id": 0}, collective())
    (root / "device_0" / "timeline" / "hccl_0_0_2.json").write_bytes(content)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert [warning.file for warning in batch.warnings] == ["PROF_1/device_0/timeline/hccl_0_0_2.json"]
    assert rows(batch, "collectives", "step") == [(1,)]


def test_a_broken_iteration_is_named_itself(tmp_path: Path) -> None:
    root = tmp_path / "run" / "PROF_1"
    older_export(root, 0, {"rank_id": 0}, collective())
    (root / "device_0" / "timeline" / "hccl_0_0_2.json").write_bytes(b'[{"ph": ?, "ts": 1}]')
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert [warning.file for warning in batch.warnings] == ["PROF_1/device_0/timeline/hccl_0_0_2.json"]


def test_a_damaged_info_file_is_a_note(tmp_path: Path) -> None:
    older_export(tmp_path / "run" / "PROF_1", 0, {}, collective())
    (tmp_path / "run" / "PROF_1" / "device_0" / "info.json.0").write_text('{"rank_id": ')
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert parts[0].rank == 0 and "info.json.0: cannot be read" in str(parts[0].notes[0])


@given(st.one_of(st.text(), st.integers(), st.none()))
def test_a_rank_is_a_small_number_or_unknown(value: str | int | None) -> None:
    rank = _number(value)
    assert rank is None or 0 <= rank < 10**9


def test_an_export_without_its_info_file_is_read_and_its_rank_said_to_be_assumed(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        older_export(
            tmp_path / f"PROF_00000{rank}_20250101000000000_A", 0, {"rank_id": rank, "hostname": "a"}, collective()
        )
    (tmp_path / "PROF_000001_20250101000000000_A" / "device_0" / "info.json.0").unlink()
    found = list(READER.find(walk(tmp_path)))
    assert sorted((each.rank, each.rank_assumed) for each in found) == [(0, False), (1, True), (2, False)]


def test_results_named_for_another_device_are_said(tmp_path: Path) -> None:
    older_export(tmp_path / "PROF_000001_20250101000000000_A", 0, {"rank_id": 0}, collective())
    timeline = tmp_path / "PROF_000001_20250101000000000_A" / "device_0" / "timeline"
    (timeline / "hccl_0_0_1.json").rename(timeline / "hccl_7_0_1.json")
    [found] = READER.find(walk(tmp_path))
    assert any("named for device 7, but lies with those of device 0" in note for note in map(str, found.notes))
