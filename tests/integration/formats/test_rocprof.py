"""rocprofv3's JSON results: one made by hand, and a real one of a training job on MI350X."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.formats.rocprof.reader import READER
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

GPU, CPU = 20, 10
KERNELS, HIP, RCCL, MARKS, COPIES = range(1, 6)
NAMES = [
    [],
    ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_COMPLETE"],
    ["hipLaunchKernel", "hipDeviceSynchronize"],
    ["ncclAllReduce"],
    ["roctxRangeA"],
    ["MEMORY_COPY_HOST_TO_DEVICE"],
]


def record(kind: int, operation: int, start: int, end: int, *, call: int = 0, **more: Any) -> dict[str, Any]:
    times = {"start_timestamp": start, "end_timestamp": end, "correlation_id": {"internal": call, "external": 0}}
    return {"kind": kind, "operation": operation, "thread_id": 7, **times, **more}


def kernel(number: int, start: int, end: int, *, call: int) -> dict[str, Any]:
    info = {"agent_id": {"handle": GPU}, "queue_id": {"handle": 2}, "kernel_id": number}
    return record(KERNELS, 1, start, end, call=call, dispatch_info=info, stream_id={"handle": 0})


def write(path: Path) -> None:
    """Two steps, marked by roctx ranges; the second's work was launched while the first's still ran."""
    content = {
        "metadata": {"node": {"hostname": "node7"}, "pid": 5, "init_time": 1000, "command": ["a}", "b"]},
        "agents": [
            {"id": {"handle": CPU}, "type": 1, "name": "EPYC", "logical_node_type_id": 0},
            {"id": {"handle": GPU}, "type": 2, "name": "gfx942", "product_name": "MI300X", "logical_node_type_id": 3},
        ],
        "kernel_symbols": [
            {"kernel_id": 1, "formatted_kernel_name": "Cijk_Alik"},
            {"kernel_id": 2, "formatted_kernel_name": "ncclDevKernel_Generic_1"},
        ],
        "strings": {
            "buffer_records": [{"kind": "x", "operations": names} for names in NAMES],
            "marker_api": [{"key": 50, "value": "ProfilerStep#4"}, {"key": 51, "value": "ProfilerStep#5"}],
        },
        "buffer_records": {
            "kernel_dispatch": [
                kernel(1, 2_000, 5_000, call=1),
                kernel(2, 5_000, 6_000, call=2),
                kernel(1, 6_000, 9_000, call=3),
                kernel(1, 9_000, 0, call=9),  # the recording ended before it
            ],
            "memory_copy": [
                record(
                    COPIES,
                    0,
                    1_900,
                    2_000,
                    call=4,
                    dst_agent_id={"handle": GPU},
                    src_agent_id={"handle": CPU},
                    bytes=64,
                )
            ],
            "hip_api": [
                record(HIP, 0, at, at + 50, call=call) for at, call in ((1_800, 4), (1_900, 1), (2_100, 2), (3_500, 3))
            ],
            "rccl_api": [record(RCCL, 0, 2_050, 2_200, call=8)],
            "marker_api": [record(MARKS, 0, 1_500, 3_000, call=50), record(MARKS, 0, 3_000, 4_500, call=51)],
        },
    }
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [content]}))


def test_kernels_calls_copies_and_ranges_are_read(tmp_path: Path) -> None:
    write(tmp_path / "run" / "rank3" / "5_results.json")
    batch, [part] = read_all(READER, tmp_path / "run", tmp_path)
    assert (part.rank, part.notes, batch.warnings) == (3, (), [])
    assert rows(batch, "ranks", "device, card", "device IS NOT NULL") == [(3, "MI300X")]
    assert rows(batch, "ranks", "host", "host IS NOT NULL") == [("node7",)]
    assert sorted(rows(batch, "steps", "step, start, duration, computing, communication")) == [
        (4, 1_500, 4_500, 3_100, 1_000),
        (5, 6_000, 3_000, 3_000, 0),
    ]
    assert rows(batch, "collectives", "op, step, duration") == [("all_reduce", 4, 1_000)]
    assert sorted(rows(batch, "kernels", "step, name, launch")) == [
        (4, "Cijk_Alik", 1_900),
        (4, "Memcpy MEMORY_COPY_HOST_TO_DEVICE", 1_800),
        (4, "ncclDevKernel_Generic_1", 2_100),
        (5, "Cijk_Alik", 3_500),
    ]
    assert rows(batch, "host_calls", "name, count, time", "layer = 'runtime'") == [("hipLaunchKernel", 4, 200)]


@needs_fixtures
def test_a_real_recording_keeps_every_kernel(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    name = "rocprofv3_908_results.json.gz"
    (tmp_path / "run" / name).symlink_to(FIXTURES / "real" / "unread-formats" / name)
    batch, [part] = read_all(READER, tmp_path / "run", tmp_path)
    assert part.rank_assumed
    # With plain json: 43,915 dispatches, 4441.741378 ms in all, of which kernels of RCCL take 4158.756678 ms.
    assert rows(batch, "kernels", "count(*), sum(duration)") == [(43_915, 4_441_741_378)]
    assert rows(batch, "collectives", "count(*), sum(duration)") == [(1_310, 4_158_756_678)]
    # It ran with max_steps=50, and marks none.
    assert rows(batch, "steps", "count(*)") == [(49,)]
