"""The text results of torch_npu and MindSpore: golden numbers, unusual names, and broken input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.ascend_text.communication_json import ns_from_raw_us
from paceline.formats.ascend_text.reader import READER
from paceline.formats.units import ns_from_us
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

TEXT = FIXTURES / "ascend-pytorch" / "text-level1"
ORACLE = FIXTURES / "mindspore-2.10-cpu" / "oracle"


def operation(
    start: str | float, elapse: float, *, wait: float = 0.0, hccs: float = 0.0, rdma: float = 0.0
) -> dict[str, Any]:
    def moved(size: float) -> dict[str, Any]:
        packets = {str(size): [1, elapse - wait]} if size else {}
        return {
            "Transit Size(MB)": size,
            "Transit Time(ms)": elapse - wait,
            "Bandwidth(GB/s)": 999,
            "Size Distribution": packets,
        }

    return {
        "Communication Time Info": {
            "Start Timestamp(us)": start,
            "Elapse Time(ms)": elapse,
            "Transit Time(ms)": elapse - wait,
            "Wait Time(ms)": wait,
            "Synchronization Time(ms)": wait,
            "Idle Time(ms)": 0.0,
        },
        "Communication Bandwidth Info": {
            "RDMA": moved(rdma),
            "HCCS": moved(hccs),
            "PCIE": moved(0),
            "SIO": moved(0),
            "SDMA": {**moved(hccs), "Size Distribution": {}},
        },
    }


def profile(root: Path, rank: int, files: dict[str, str | bytes]) -> Path:
    directory = root / f"host_1{rank}_2026010100000000{rank}_ascend_pt"
    (directory / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (directory / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (directory / "ASCEND_PROFILER_OUTPUT" / name).write_bytes(data)
    return directory


def communication(operations: dict[str, Any]) -> str:
    return json.dumps({"step3": {"p2p": {}, "collective": operations}})


def test_collectives_leave_totals_out_and_count_sdma_once(tmp_path: Path) -> None:
    name = "hcom_allReduce__612_4_1@5862276093215481612"
    operations = {
        name: operation("1764246877074017.600", 5.0, wait=3.0, hccs=8.0, rdma=2.0),
        "Total Op Info": operation(0, 99),
    }
    profile(tmp_path, 5, {"communication.json": communication(operations)})
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "collectives", 'rank, step, "group", op, sequence, start, duration, wait, bytes') == [
        (5, 3, "5862276093215481612", "all_reduce", 4, 1764246877074017600, 5_000_000, 3_000_000, 10_000_000)
    ]
    assert sorted(rows(batch, "packets", "transport, packet_bytes, count")) == [
        ("HCCS", 8_000_000, 1),
        ("RDMA", 2_000_000, 1),
    ]


def test_links_come_from_totals_and_not_from_samples(tmp_path: Path) -> None:
    link = {"Transport Type": "HCCS", "Transit Size(MB)": 4.0, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 77}
    matrix = {
        "step3": {
            "collective": {
                "allreduce-top1@7": {"0-1": link},
                "allreduce-total@7": {"0-1": link, "1-1": link},
                "broadcast-middle@7": {"0-1": link},
            }
        }
    }
    profile(tmp_path, 0, {"communication_matrix.json": json.dumps(matrix)})
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "transfers", "src, dst, transport, bytes, duration, scope") == [
        (0, 1, "HCCS", 4_000_000, 500_000, "group"),
        (1, 1, "HCCS", 4_000_000, 500_000, "group"),
    ]
    assert [str(warning) for warning in batch.warnings] == [
        "rank 0: host_10_20260101000000000_ascend_pt/ASCEND_PROFILER_OUTPUT/communication_matrix.json: "
        "broadcast of group 7 has samples but no total; its links are left out"
    ]


def test_steps_take_begin_and_end_from_the_timeline_whatever_the_order_of_its_keys(tmp_path: Path) -> None:
    header = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"
    events = [
        {"ph": "X", "name": "aten::add", "ts": "1.0", "dur": 1},
        {
            "args": {"Call stack": "ä{}"},
            "dur": 150.5,
            "ts": "1764246877074017.600",
            "name": "ProfilerStep#7",
            "ph": "X",
        },
    ]
    files = {
        "step_trace_time.csv": f"{header}\r\n7,100.5,20,5,25,30,150,0,1\r\n8,1,2,3,5,4,7,0,0\r\n",
        "trace_view.json": json.dumps(events, ensure_ascii=False),
    }
    profile(tmp_path, 0, files)
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "steps", 'step, start, "end", duration, computing, exposed, free') == [
        (7, 1764246877074017600, 1764246877074168100, 150_500, 100_500, 20_000, 30_000),
        (8, None, None, 7_000, 1_000, 2_000, 4_000),
    ]


@pytest.mark.parametrize("wrap", [False, True], ids=["list", "object"])
@pytest.mark.parametrize("as_text", [False, True], ids=["numbers", "strings"])
def test_timeline_is_read_as_list_or_object_with_numbers_or_strings(tmp_path: Path, wrap: bool, as_text: bool) -> None:
    start, length = ("12.345", "6.789") if as_text else (12.345, 6.789)
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CANN"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "Thread 2"}},
        {
            "ph": "X",
            "name": "launch",
            "pid": 1,
            "tid": 2,
            "ts": start,
            "dur": length,
            "cat": "x",
            "args": {"deep": {"a": [1]}},
        },
        {"ph": "C", "name": "AI Core Freq", "pid": 3, "ts": start, "args": {"MHz": 1800}},
        {"ph": "s", "id": 4, "name": "flow", "pid": 1, "tid": 2, "ts": start},
    ]
    trace = {"schema": 1, "traceEvents": events, "more": {"x": [1, 2]}} if wrap else events
    profile(tmp_path, 0, {"trace_view.json": json.dumps(trace)})
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "events", "track, name, category, start, duration") == [
        ("CANN/Thread 2", "launch", "x", 12345, 6789)
    ]
    assert rows(batch, "counters", "name, series, time, value") == [("AI Core Freq", "MHz", 12345, 1800.0)]


def test_kernels_survive_tabs_quotes_missing_values_and_a_cut_off_last_row(tmp_path: Path) -> None:
    header = (
        "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Stream ID,Input Shapes"
    )
    body = '3,0,MatMul1,MatMulV2,AI_CORE,1764246877074017.600\t,53.741,0,2,"""4096,8192;8192,1280"""\r\n'
    profile(
        tmp_path,
        0,
        {"kernel_details.csv": f"{header}\r\n{body}3,0,hcom_x,N/A,COMMUNICATION,17.5\t,1,N/A,9,N/A\r\n3,0,Cut"},
    )
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "kernels", "step, name, type, core, start, duration, stream, input_shapes") == [
        (3, "MatMul1", "MatMulV2", "AI_CORE", 1764246877074017600, 53_741, 2, "4096,8192;8192,1280"),
        (3, "hcom_x", None, "COMMUNICATION", 17_500, 1_000, 9, None),
    ]
    assert [warning.message for warning in batch.warnings] == ["1 rows without a readable duration are left out"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("communication.json", "", "is empty"),
        ("communication.json", communication({"a@1": operation(1, 2)})[:-40], "is cut off"),
        ("communication.json", "[" * 200_000, "nested too deeply|is cut off|not what its name says"),
        ("communication.json", '{"step1": {"collective": {"a": 5}}}', "not what its name says"),
        ("communication.json", '{"stepx": {"collective": {}}}', "a step called 'stepx'"),
        (
            "communication_matrix.json",
            '{"step1":{"collective":{"a-total@1":{"x-y":{"Transport Type":"HCCS",'
            '"Transit Size(MB)":1,"Transit Time(ms)":1}}}}}',
            "a link called 'x-y'",
        ),
        ("step_trace_time.csv", b"Step,Computing,Free\n\xff\xfe,1,2\n", "is not UTF-8 text"),
        ("step_trace_time.csv", "a,b\n1,2\n", "lacks the column 'Step'"),
        ("kernel_details.csv", "", "is empty"),
        ("kernel_details.csv", "Name,Name\n", "names a column twice"),
        ("trace_view.json", "", "is empty"),
        ("trace_view.json", '[{"ph": "X", "name": "a", "ts": 1', "cannot be understood"),
        ("trace_view.json", '{"traceEvents": [{"ph": "X"', "is cut off"),
        ("trace_view.json", '{"other": 1}', 'no "traceEvents"'),
    ],
)
def test_broken_files_are_named_with_rank_and_healthy_files_are_still_read(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    healthy = communication({"hcom_allReduce__1_0_1@1": operation(1, 2)})
    profile(tmp_path, 0, {"communication.json": healthy})
    profile(tmp_path, 7, {name: content})
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert len(rows(batch, "collectives", where="rank = 0")) == 1
    broken = [warning for warning in batch.warnings if warning.rank == 7]
    assert broken and broken[0].file and broken[0].file.endswith(name)
    assert "\n" not in str(broken[0])
    import re

    assert re.search(said, broken[0].message), broken[0].message


def test_ranks_without_a_number_are_numbered_and_reported(tmp_path: Path) -> None:
    for worker in ("a", "b"):
        output = tmp_path / worker / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (output / "step_trace_time.csv").write_text("Step,Computing,Free\n1,2,3\n")
    parts = list(READER.find(__import__("paceline.storage.file_tree", fromlist=["walk"]).walk(tmp_path)))
    assert [(part.root, part.rank) for part in parts] == [("a", 0), ("b", 1)]
    assert tuple(map(str, parts[0].notes)) == ("a: its rank is not recorded; assumed to be rank 0",)


@given(st.integers(0, 2 * 10**18))
def test_microseconds_are_exact_to_the_nanosecond(moment: int) -> None:
    text = f"{moment // 1000}.{moment % 1000:03d}"
    assert ns_from_raw_us(text.encode()) == moment
    assert ns_from_raw_us(f'"{text}"'.encode()) == moment
    assert ns_from_us(text + "\t") == moment


@given(st.text())
def test_no_text_upsets_the_number_parser(text: str) -> None:
    value = ns_from_us(text)
    assert value is None or isinstance(value, int)


@needs_fixtures
def test_real_torch_pair_gives_its_step_and_links(tmp_path: Path) -> None:
    batch, parts = read_all(READER, TEXT, tmp_path)
    assert [part.rank for part in parts] == [0, 1]
    assert batch.warnings == []
    assert rows(batch, "steps", "step, computing, exposed, free, preparing", "rank = 0") == [
        (50, 8_873_756, 101_963_203, 25_744_050, 17_902_500)
    ]
    (link,) = rows(batch, "transfers", "sum(bytes), sum(duration)", "rank = 0 AND src = 0 AND dst = 1")
    expected = json.loads((TEXT / "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/communication_matrix.json").read_text())
    totals = [
        links["0-1"] for name, links in expected["step50"]["collective"].items() if "-total@" in name and "0-1" in links
    ]
    assert link == (
        round(sum(link["Transit Size(MB)"] for link in totals) * 1e6),
        round(sum(link["Transit Time(ms)"] for link in totals) * 1e6),
    )
    lines = (TEXT / "rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv").read_text().strip().splitlines()
    assert len(rows(batch, "kernels", where="rank = 0")) == len(lines) - 1


@needs_fixtures
def test_files_written_by_mindspores_own_viewers_are_read(tmp_path: Path) -> None:
    batch, _ = read_all(READER, ORACLE, tmp_path)
    assert rows(batch, "steps", "step, computing, communication, overlapped, exposed, free, bubble") == [
        (2, 300_000, 250_000, 100_000, 150_000, 450_000, 50_000),
        (3, 300_000, 250_000, 100_000, 150_000, 450_000, 50_000),
    ]
    assert rows(batch, "kernels", "step, type, start, duration") == [
        (2, "MatMulV2", 2_100_000, 300_000),
        (3, "MatMulV2", 3_100_000, 300_000),
    ]
    assert ("receive", 4_000_000) in rows(batch, "collectives", "op, bytes")
    assert rows(batch, "input_pipeline", "count(*)")[0][0] > 0


@needs_fixtures
def test_without_the_step_table_its_numbers_come_from_the_timeline(tmp_path: Path) -> None:
    """A split of another origin on one rank would be compared with the table of the other."""
    shutil.copytree(TEXT, tmp_path / "cut", copy_function=shutil.copyfile)
    (tmp_path / "cut" / "rank1_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").unlink()
    parts = "rank, step, duration, computing, communication, overlapped, exposed, free, bubble"
    whole, cut = (rows(read_all(READER, root, tmp_path)[0], "steps", parts) for root in (TEXT, tmp_path / "cut"))
    assert len(whole) == 2
    assert sorted(cut) == sorted(whole)


def test_a_timeline_without_overlap_analysis_gives_durations_only(tmp_path: Path) -> None:
    mark = {"ph": "X", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": "100.000", "dur": 50.0}
    profile(tmp_path / "in", 0, {"trace_view.json": json.dumps([mark])})
    batch, _ = read_all(READER, tmp_path / "in", tmp_path)
    assert rows(batch, "steps", "step, duration, computing, free") == [(3, 50_000, None, None)]


def test_the_timeline_keeps_arguments_and_arrows(tmp_path: Path) -> None:
    """An arrow may end twice, and numbers are used again; an end without a begin has no arrow."""

    def arrow(phase: str, time: str, thread: int, number: object = 7) -> dict[str, object]:
        return {
            "ph": phase,
            "name": "HostToDevice",
            "cat": "HostToDevice",
            "id": number,
            "pid": 1,
            "tid": thread,
            "ts": time,
        }

    span = {
        "ph": "X",
        "name": "launch",
        "pid": 1,
        "tid": 2,
        "ts": "1.500",
        "dur": 1.0,
        "args": {"Mode": "launch", "id": 7},
    }
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CANN"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "Thread 2"}},
        span,
        {"ph": "X", "name": "kernel", "tid": 3, "ts": "4.000", "dur": 2.0},
        arrow("f", "1.000", 3),
        arrow("s", "2.000", 2),
        arrow("f", "4.000", 3, "7"),
        arrow("f", "5.000", 3),
        arrow("s", "8.000", 2),
        arrow("f", "9.000", 3),
    ]
    profile(tmp_path / "in", 0, {"trace_view.json": json.dumps(events)})
    batch, _ = read_all(READER, tmp_path / "in", tmp_path)
    assert sorted(rows(batch, "events", "track, name, args")) == [
        ("/3", "kernel", None),
        ("CANN/Thread 2", "launch", '{"Mode":"launch","id":7}'),
    ]
    assert sorted(rows(batch, "flows", 'start_track, start, end_track, "end"')) == [
        ("CANN/Thread 2", 2_000, "CANN/3", 4_000),
        ("CANN/Thread 2", 2_000, "CANN/3", 5_000),
        ("CANN/Thread 2", 8_000, "CANN/3", 9_000),
    ]
