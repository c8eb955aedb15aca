"""Every result file that MindSpore Profiler's guide documents, with its documented columns (docs/formats.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paceline.formats.ascend_text.reader import READER
from support.reader_helpers import read_all, rows

DOC = Path(__file__).parents[3] / "docs/formats.md"

IDLE = {
    "Transit Size(MB)": 0,
    "Transit Time(ms)": 0,
    "Bandwidth(GB/s)": 0,
    "Large Packet Ratio": 0,
    "Size Distribution": {},
}


def moved(megabytes: float, milliseconds: float, packets: int) -> dict[str, Any]:
    size = {str(megabytes / packets): [packets, milliseconds]}
    return IDLE | {"Transit Size(MB)": megabytes, "Transit Time(ms)": milliseconds, "Size Distribution": size}


ALL_REDUCE = {
    "Communication Time Info": {
        "Start Timestamp(us)": 1000.5,
        "Elapse Time(ms)": 2.0,
        "Transit Time(ms)": 0.75,
        "Wait Time(ms)": 1.0,
        "Synchronization Time(ms)": 0.5,
        "Idle Time(ms)": 0.25,
    },
    # SDMA repeats HCCS, PCIE and SIO, without their packets.
    "Communication Bandwidth Info": {
        "RDMA": moved(8, 0.25, 2),
        "HCCS": moved(4, 0.125, 4),
        "PCIE": moved(2, 0.25, 1),
        "SIO": moved(1, 0.125, 1),
        "SDMA": moved(7, 0.5, 6) | {"Size Distribution": {}},
    },
}
COMMUNICATION = {
    "step3": {"p2p": {}, "collective": {"hcom_allReduce__501_0_1@7001": ALL_REDUCE, "Total Op Info": ALL_REDUCE}},
}
LINK = {"Transport Type": "HCCS", "Transit Size(MB)": 4.0, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 8.0}
MATRIX = {
    "step3": {"p2p": {}, "collective": {"allreduce-total@7001": {"0-1": LINK}, "allreduce-top1@7001": {"0-1": LINK}}}
}
TRACE = [
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Ascend Hardware"}},
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 5, "args": {"name": "Stream 5"}},
    {"ph": "X", "name": "MatMulV2", "pid": 7, "tid": 5, "ts": "1000.250", "dur": 12.5, "args": {}},
]
GROUPS = {"7001": {"group_name": "dp-0-1", "group_rank": 0, "global_ranks": [0, 1]}}

FILES: dict[str, str | Any] = {
    "profiler_info_0.json": {"rank_id": 0, "device_id": 3, "ms_profiler_info": {"rank_id": 0, "device_id": 3}},
    "profiler_metadata.json": {"parallel_group_info": GROUPS},
    "ASCEND_PROFILER_OUTPUT/api_statistic.csv": (
        "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\nhost,node,launch,90.5,3,30.2,20.5,40.0,1.0\n"
    ),
    "ASCEND_PROFILER_OUTPUT/communication.json": COMMUNICATION,
    "ASCEND_PROFILER_OUTPUT/communication_matrix.json": MATRIX,
    "ASCEND_PROFILER_OUTPUT/dataset.csv": (
        "Operation,Stage,Occurrences,Avg. time (us),Custom Info\nPipeline,first,4,20.0,{'a': '1'}\n"
    ),
    "ASCEND_PROFILER_OUTPUT/data_preprocess.csv": (
        "SerialNumber,Node,Total_time(us),Dispatch_time(us),Execution_time(us)\n1,GetNext,40.5,2.5,38.0\n"
    ),
    "ASCEND_PROFILER_OUTPUT/kernel_details.csv": (
        "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
        "Input Shapes,Input Data Types,Output Shapes\n"
        '3,1,2,5,Default/net/MatMul-op0,MatMulV2,AI_CORE,1000.250\t,12.5,0.5,"""16,32;32,64""",FLOAT;FLOAT,"""16,64"""\n'
    ),
    "ASCEND_PROFILER_OUTPUT/l2_cache.csv": (
        "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n3,5,2,0.75,0.25,MatMul-op0\n"
    ),
    "ASCEND_PROFILER_OUTPUT/memory_record.csv": (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Device Type\n"
        "MindSpore,1000.5,10.0,20.0,5.0,NPU:3\n"
    ),
    "ASCEND_PROFILER_OUTPUT/minddata_pipeline_raw_0.csv": (
        "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length,"
        "output_queue_usage_rate,sample_interval,parent_id,children_id\n"
        '0,BatchOp,2,"[4, 4]",4.0,16,0.25,1000,,\n'
    ),
    "ASCEND_PROFILER_OUTPUT/npu_module_mem.csv": (
        "Component,Timestamp(us),Total Reserved(MB),Device\nHCCL,1000.5,30.0,NPU:3\n"
    ),
    "ASCEND_PROFILER_OUTPUT/operator_memory.csv": (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
        "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),Device Type\n"
        "Default/net/MatMul-op0,64.0,1000.5,1100.5,,100.0,,10.0,20.0,5.0,NPU:3\n"
    ),
    "ASCEND_PROFILER_OUTPUT/op_statistic.csv": (
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
        "3,MatMulV2,AI_CORE,2,25.0,12.0,12.5,13.0,100.0\n"
    ),
    "ASCEND_PROFILER_OUTPUT/step_trace_time.csv": (
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n3,300.5,150.0,100.0,250.0,450.0,200,50,100.0,20.0\n"
    ),
    "ASCEND_PROFILER_OUTPUT/trace_view.json": TRACE,
}
"""As the guide documents them; times are µs where a column says so."""

EXPECTED: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "profiler_info": ("ranks", "device", [(3,)]),
    "profiler_metadata": ("groups", "index, rank", [(0, 0), (1, 1)]),
    "api_statistic": (
        "host_calls",
        "layer, name, count, time, min, max",
        [("node", "launch", 3, 90_500, 20_500, 40_000)],
    ),
    "communication": (
        "collectives",
        "step, op, start, duration, transit, wait, sync, bytes",
        [(3, "all_reduce", 1_000_500, 2_000_000, 750_000, 1_000_000, 500_000, 15_000_000)],
    ),
    "communication_matrix": (
        "transfers",
        "step, src, dst, transport, bytes, duration",
        [(3, 0, 1, "HCCS", 4_000_000, 500_000)],
    ),
    "data_preprocess": ("kernels", "name, core, duration", [("GetNext", "AI_CPU", 40_500)]),
    "kernel_details": (
        "kernels",
        "step, name, type, core, stream, start, duration, wait, input_shapes",
        [(3, "Default/net/MatMul-op0", "MatMulV2", "AI_CORE", 5, 1_000_250, 12_500, 500, "16,32;32,64")],
    ),
    "l2_cache": ("l2_cache", "name, stream, task, hit_rate, victim_rate", [("MatMul-op0", 5, 2, 0.75, 0.25)]),
    "op_statistic": ("operators", "type, core, count, time", [("MatMulV2", "AI_CORE", 2, 25_000)]),
    "step_trace_time": (
        "steps",
        "step, computing, communication, overlapped, exposed, free, bubble, preparing",
        [(3, 300_500, 250_000, 100_000, 150_000, 450_000, 50_000, 20_000)],
    ),
    "trace_view": ("events", "name, start, duration", [("MatMulV2", 1_000_250, 12_500)]),
}
PACKETS = [("HCCS", 1_000_000, 4), ("PCIE", 2_000_000, 1), ("RDMA", 4_000_000, 2), ("SIO", 1_000_000, 1)]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("documented")
    for name, content in FILES.items():
        path = root / "host_1_20260101000000000_ascend_ms" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_all(READER, root, tmp_path_factory.mktemp("read"))[0]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_documented_file_is_read(batch: Any, name: str) -> None:
    table, columns, expected = EXPECTED[name]
    where = {"data_preprocess": "core = 'AI_CPU'", "kernel_details": "core <> 'AI_CPU'"}.get(name, "true")
    assert rows(batch, table, columns, where) == expected


def test_packets_of_every_transport_are_read_and_sdma_is_not_counted_twice(batch: Any) -> None:
    assert sorted(rows(batch, "packets", "transport, packet_bytes, count")) == PACKETS


def test_the_files_of_the_dataset_are_read(batch: Any) -> None:
    found = rows(batch, "input_pipeline", "op, workers, queue_size, queue_capacity", "op_id IS NOT NULL")
    assert found == [("Batch", 2, 4.0, 16)]
    assert rows(batch, "input_pipeline", "op, stage", "stage IS NOT NULL") == [("Pipeline", "first")]


def test_memory_of_all_three_files_is_read_in_mindspores_megabytes(batch: Any) -> None:
    found = {(name, kind): (size, allocated, reserved) for name, kind, size, allocated, reserved in rows(
        batch, "memory", "name, kind, size, allocated, reserved"
    )}  # fmt: skip
    assert found["MindSpore", "sample"][1:] == (10_240_000, 20_480_000)
    assert [value[2] for (name, _), value in found.items() if name == "HCCL"] == [30_720_000]
    assert found["Default/net/MatMul-op0", "operator"][0] == 65_536


def test_nothing_of_them_is_reported_as_broken(batch: Any) -> None:
    assert not batch.warnings


def test_the_document_has_a_row_for_each() -> None:
    table = DOC.read_text().partition("## MindSpore Profiler's result files")[2]
    named = {
        match.removesuffix("_0")
        for match in re.findall(r"^\| `([a-z0-9_]+?)(?:_\*)?\.(?:csv|json)", table, re.MULTILINE)
    }
    wanted = {re.sub(r"_0$", "", Path(name).stem) for name in FILES}
    assert wanted - named == set()
