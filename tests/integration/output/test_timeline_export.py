"""Exports of the timeline: every argument and every arrow of the recording, as Chrome JSON and as Perfetto's protobuf."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import paceline
from paceline.output.chrome_trace import export_chrome_trace
from paceline.output.perfetto_trace import export_perfetto_trace
from support.reader_helpers import FIXTURES, needs_fixtures

B200 = FIXTURES / "real" / "tracelens" / "b200_vllm_eager.json.gz"


def span(name: str, category: str, pid: int, tid: int, start: float, duration: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def flow(phase: str, number: int, pid: int, tid: int, at: float, category: str = "ac2g") -> dict[str, Any]:
    return {"ph": phase, "cat": category, "name": category, "id": number, "pid": pid, "tid": tid, "ts": at}


EVENTS = [
    span("ProfilerStep#4", "user_annotation", 1, 2, 0, 100),
    span("aten::mm", "cpu_op", 1, 2, 10, 30, **{"Input Dims": [[8, 4], [4, 2]], "External id": 3, "note": 'a "b" 界'}),
    span("cudaLaunchKernel", "cuda_runtime", 1, 2, 20, 5, correlation=7, cbid=211),
    span("gemm", "kernel", 0, 7, 50, 40, correlation=7, stream=7, device=0, grid=[1, 2, 3]),
    # On the same stream, but overlapping: graphs do that.
    span("copy", "gpu_memcpy", 0, 7, 80, 15, correlation=8, stream=7, bytes=4096),
    flow("s", 7, 1, 2, 20),
    flow("f", 7, 0, 7, 50),
    flow("f", 9, 1, 2, 60),  # a call without device work
    flow("s", 1, 1, 2, 10, "fwdbwd"),
    flow("f", 1, 1, 2, 20, "fwdbwd"),
]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    source = tmp_path / "source"
    source.mkdir()
    (source / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": EVENTS}))
    with paceline.open(source, store=tmp_path / "store") as run:
        yield run


def test_a_chrome_trace_keeps_arguments_and_arrows(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.json.gz"
    export_chrome_trace(run, target)
    events = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    args = {event["name"]: event.get("args") for event in events if event["ph"] == "X"}
    recorded = {event["name"]: event["args"] for event in EVENTS if event["ph"] == "X"}
    assert {name: args[name] or {} for name in recorded} == recorded
    names = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    arrows: dict[int, list[tuple[str, str, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append((event["cat"], names[event["pid"], event["tid"]], event["ts"]))
    assert sorted(map(sorted, arrows.values())) == [
        [("ac2g", "0/7", 50), ("ac2g", "1/2", 20)],
        [("fwdbwd", "1/2", 10), ("fwdbwd", "1/2", 20)],
    ]


def test_perfetto_s_trace_has_nested_slices_arguments_and_flows(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "out.perfetto-trace"
    assert export_perfetto_trace(run, target) == 6
    slices, tracks, processes = decoded(target)
    assert processes == {"rank 0"}
    assert [(name, tracks[track], start, end) for name, track, start, end, _ in sorted(slices, key=str)] == [
        ("ProfilerStep#4", "1/2", 0, 100_000),
        ("aten::mm", "1/2", 10_000, 40_000),
        ("copy", "0/7", 80_000, 95_000),
        ("cudaLaunchKernel", "1/2", 20_000, 25_000),
        ("gemm", "0/7", 50_000, 90_000),
        ("step 4", "Steps", 0, 100_000),
    ]
    of = {name: event for name, *_, event in slices}
    assert len({track for name, track, *_ in slices if name in ("gemm", "copy")}) == 2
    [forward] = of["aten::mm"].flow_ids
    assert set(of["cudaLaunchKernel"].terminating_flow_ids) == {forward}
    assert list(of["cudaLaunchKernel"].flow_ids) == list(of["gemm"].terminating_flow_ids) != [forward]
    values = {each.name: each for each in of["aten::mm"].debug_annotations}
    assert json.loads(values["Input Dims"].string_value) == [[8, 4], [4, 2]]
    assert (values["External id"].int_value, values["note"].string_value) == (3, 'a "b" 界')


def decoded(path: Path) -> tuple[list[tuple[str, int, int, int, Any]], dict[int, str], set[str]]:
    """Slices as (name, track, start, end, begin event), names of tracks, names of processes."""
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks: dict[int, str] = {}
    processes: set[str] = set()
    open_slices: dict[int, list[Any]] = defaultdict(list)
    slices = []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            tracks[descriptor.uuid] = descriptor.name
            if descriptor.HasField("process"):
                processes.add(descriptor.process.process_name)
            else:
                assert descriptor.parent_uuid in tracks
        elif packet.HasField("track_event"):
            event = packet.track_event
            if event.type == perfetto_trace_pb2.TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append(packet)
            else:
                begin = open_slices[event.track_uuid].pop()
                slices.append(
                    (begin.track_event.name, event.track_uuid, begin.timestamp, packet.timestamp, begin.track_event)
                )
    assert not any(open_slices.values())
    return slices, tracks, processes


@needs_fixtures
def test_a_real_trace_loses_no_argument_and_no_arrow(tmp_path: Path) -> None:
    recorded = json.loads(gzip.decompress(B200.read_bytes()))["traceEvents"]
    with_arguments = sum(bool(event.get("args")) for event in recorded if event["ph"] == "X" and "dur" in event)
    starts = {(event["cat"], event["id"]) for event in recorded if event["ph"] == "s"}
    ends = [(event["cat"], event["id"]) for event in recorded if event["ph"] == "f"]
    arrows = sum(end in starts for end in ends)
    with paceline.open(B200, store=tmp_path / "store") as run:
        export_chrome_trace(run, tmp_path / "out.json")
        export_perfetto_trace(run, tmp_path / "out.perfetto-trace")
    events = json.loads((tmp_path / "out.json").read_bytes())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(bool(event.get("args")) for event in spans) == with_arguments > 10_000
    assert sum(event["ph"] == "f" for event in events) == sum(event["ph"] == "s" for event in events) == arrows > 900
    slices, _, _ = decoded(tmp_path / "out.perfetto-trace")
    assert len(slices) == len(spans)
    flowing = {number for *_, event in slices for number in event.flow_ids}
    arriving = {number for *_, event in slices for number in event.terminating_flow_ids}
    assert flowing == arriving and len(flowing) > 0.99 * arrows
