"""torch traces: real ones recomputed with plain json and Python, and small synthetic ones for special cases."""

from __future__ import annotations

import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.formats.base import CUT_OFF
from paceline.formats.kineto.reader import READER
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

GLOO = FIXTURES / "mindspore-2.10-cpu" / "kineto"
HTA = FIXTURES / "kineto" / "hta-2-ranks"
NANOSECONDS = FIXTURES / "kineto" / "ns_resolution_trace"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


# -- an independent reading -------------------------------------------------------------------------------------------


def events_of(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data, parse_float=Decimal)
    base = document.get("baseTimeNanoseconds", 0)
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for event in events:
        event["start"], event["duration"] = int(event["ts"] * 1000) + base, int(event["dur"] * 1000)
    return events


def covered(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Length of the union of spans inside [begin, end), walking along the sorted spans."""
    total, reached = 0, begin
    for start, stop in sorted(spans):
        start, stop = max(start, reached), min(stop, end)
        if stop > start:
            total, reached = total + stop - start, stop
    return total


def recomputed_steps(events: list[dict[str, Any]]) -> dict[int, tuple[int, ...]]:
    """step → computing, communication, overlapped, exposed, free of the work that was launched in it"""
    marks = sorted(
        (event["start"], event["start"] + event["duration"], int(event["name"][13:]))
        for event in events
        if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    )
    launches = {
        event["args"]["correlation"]: event["start"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    result, reached = {}, 0
    for begin, end, step in marks:
        span = {True: [], False: []}  # type: dict[bool, list[tuple[int, int]]]
        for event in events:
            if event.get("cat") in DEVICE and begin <= launches[event["args"]["correlation"]] <= end:
                span["nccl" in event["name"]].append((event["start"], event["start"] + event["duration"]))
        begin, end = max(begin, reached), max([end, *(stop for _, stop in span[True] + span[False])])
        compute, talk = covered(span[False], begin, end), covered(span[True], begin, end)
        busy = covered(span[False] + span[True], begin, end)
        result[step] = (compute, talk, compute + talk - busy, busy - compute, end - begin - busy)
        reached = end
    return result


# -- real recordings --------------------------------------------------------------------------------------------------


@needs_fixtures
@pytest.mark.parametrize("directory", [HTA, NANOSECONDS], ids=["hta", "nanoseconds"])
def test_steps_of_gpu_traces_equal_a_recomputation_in_plain_python(directory: Path, tmp_path: Path) -> None:
    batch, parts = read_all(READER, directory, tmp_path)
    assert not batch.warnings
    for part in parts:
        expected = recomputed_steps(events_of(directory / part.root))
        found = rows(batch, "steps", "step, computing, communication, overlapped, exposed, free", f"rank = {part.rank}")
        assert {step for step, *_ in found} == set(expected)
        for step, *times in found:
            # Numbers as large as microseconds since 1970 are exact to 0.25 µs in JSON readers.
            assert times == pytest.approx(expected[step], abs=250_000 if directory == NANOSECONDS else 0)


@needs_fixtures
def test_hta_ranks_have_their_nccl_kernels_and_the_missing_ranks_are_reported_once(tmp_path: Path) -> None:
    batch, parts = read_all(READER, HTA, tmp_path)
    assert [note for part in parts for note in map(str, part.notes)] == [
        "the job has 128 ranks; no trace was found of 126 of them: 2–127"
    ]
    for part in parts:
        events = events_of(HTA / part.root)
        nccl = [event for event in events if event["cat"] == "kernel" and event["name"].startswith("nccl")]
        mine = f"rank = {part.rank}"
        assert rows(batch, "collectives", "count(*), sum(duration)", mine) == [
            (len(nccl), sum(event["duration"] for event in nccl))
        ]
        # All kernels are called SendRecv; by hand: the nccl: annotations that enclose their launches.
        found = sorted(rows(batch, "collectives", "op, sequence", mine))
        counts = {"all_gather": 2, "all_reduce": 4, "all_to_all": 4}
        assert found == [(op, number) for op, count in counts.items() for number in range(count)]
        device = [event for event in events if event["cat"] in DEVICE]
        assert rows(batch, "kernels", "count(*), sum(duration)", mine) == [
            (len(device), sum(event["duration"] for event in device))
        ]
        assert rows(batch, "events", "count(*)", mine) == [(len(events),)]
        assert rows(batch, "ranks", "max(device)", mine) == [(part.rank,)]


@needs_fixtures
def test_host_calls_are_summed_per_call(tmp_path: Path) -> None:
    batch, _ = read_all(READER, NANOSECONDS, tmp_path)
    (path,) = NANOSECONDS.iterdir()
    launches = [event["duration"] for event in events_of(path) if event["name"] == "cudaLaunchKernel"]
    assert rows(batch, "host_calls", "layer, count, time, min, max", "name = 'cudaLaunchKernel'") == [
        ("runtime", len(launches), sum(launches), min(launches), max(launches))
    ]
    assert rows(batch, "ranks", "max(host)") == [("twshared39868.02.pnb3.facebook.com",)]


@needs_fixtures
def test_starts_lie_within_an_eighth_of_a_microsecond_where_json_numbers_cannot_hold_more(tmp_path: Path) -> None:
    batch, _ = read_all(READER, NANOSECONDS, tmp_path)
    (path,) = NANOSECONDS.iterdir()
    exact = sorted(event["start"] for event in events_of(path))
    found = sorted(start for (start,) in rows(batch, "events", "start"))
    assert max(abs(a - b) for a, b in zip(exact, found, strict=True)) <= 125


@needs_fixtures
def test_rank_0_waits_in_gloo_for_rank_1_that_was_slowed_by_30_ms(tmp_path: Path) -> None:
    batch, parts = read_all(READER, GLOO, tmp_path)
    assert not batch.warnings
    newest = {part.rank: part for part in sorted(parts, key=lambda part: part.recorded)}
    assert [newest[rank].root.split(".")[0] for rank in (0, 1)] == ["vm_18289", "vm_18290"]
    # Both recordings of both ranks were read here: take the first one by its time.
    early = f"start < {int(newest[0].recorded)}"
    big = f"{early} AND op = 'all_reduce' AND bytes = 136714 * 4"
    waits = dict[int, dict[int, tuple[int, int]]]({0: {}, 1: {}})
    for rank, sequence, start, duration, group in rows(
        batch, "collectives", 'rank, sequence, start, duration, "group"', big
    ):
        assert group == "0"
        waits[rank][sequence] = (start, start + duration)
    assert set(waits[0]) == set(waits[1]) == {0, 2, 4}
    for sequence, (start, end) in waits[0].items():
        late, finished = waits[1][sequence]
        assert 25e6 < late - start < 60e6
        assert abs(finished - end) < 5e6
    assert sorted(rows(batch, "groups", 'DISTINCT "group", kind, index, rank')) == [
        ("0", "world", 0, 0),
        ("0", "world", 1, 1),
    ]
    assert rows(batch, "steps", "min(free) > 30e6", f"rank = 1 AND {early}") == [(True,)]


@needs_fixtures
def test_gloo_events_and_times_are_exact(tmp_path: Path) -> None:
    batch, _ = read_all(READER, GLOO / "rank0_step5.pt.trace.json", tmp_path)
    events = events_of(GLOO / "rank0_step5.pt.trace.json")
    assert sorted(rows(batch, "events", "name, start, duration")) == sorted(
        (event["name"], event["start"], event["duration"]) for event in events
    )
    talk = [(event["start"], event["start"] + event["duration"]) for event in events if "gloo:" in event["name"]]
    for start, end, communication in rows(batch, "steps", 'start, "end", communication'):
        assert communication == covered(talk, start, end)


# -- self-made traces -------------------------------------------------------------------------------------------------


def span(name: str, cat: str, ts: float | str, dur: float | str, **args: object) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "pid": 1,
        "tid": args.pop("tid", 1),
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def write(path: Path, events: list[dict[str, object]], **metadata: object) -> Path:
    document = {"schemaVersion": 1, "deviceProperties": [], **metadata, "traceEvents": events, "traceName": "x"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def nccl(name: str, ts: float | str, dur: float | str, **args: object) -> dict[str, object]:
    told = {"Process Group Name": "7", "Process Group Description": "DATA_PARALLEL_GROUP", "dtype": "BFloat16"}
    return span(name, "kernel", ts, dur, stream=30, device=2, **(told | args))


def test_new_nccl_kernels_have_group_payload_sequence_and_peer(tmp_path: Path) -> None:
    ranks = {"Process Group Ranks": "[3, 9]"}
    gathered = {"Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 200, "Seq": 41}
    sent = {"Collective name": "send", "In msg nelems": 8, "Out msg nelems": 8, "Src Rank": 3, "Dst Rank": 9, "Seq": 5}
    received = sent | {"Collective name": "recv", "Src Rank": 9, "Dst Rank": 3}
    events = [
        span("ProfilerStep#4", "user_annotation", 100.0, 50.0),
        span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", 99.0, 4.0),
        nccl("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 110.0, 5.5, **ranks, **gathered),
        nccl("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 120.0, 2.0, **ranks, **sent),
        nccl("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 124.0, 2.0, **ranks, **received),
        span("c10d::send", "cpu_op", 119.0, 1.0),
        span("void at::native::sum<float>(float*)", "kernel", 112.0, 10.0, stream=7, device=2),
    ]
    write(tmp_path / "a" / "trace.json", events, distributedInfo={"rank": 3, "world_size": 0})
    batch, _ = read_all(READER, tmp_path / "a", tmp_path)
    assert not batch.warnings
    assert sorted(rows(batch, "collectives", 'step, "group", op, sequence, peer, start, duration, bytes')) == [
        (4, "7", "all_gather", 41, None, 110_000, 5_500, 400),
        (4, "7", "receive", 5, 9, 124_000, 2_000, 16),
        (4, "7", "send", 5, 9, 120_000, 2_000, 16),
    ]
    assert sorted(rows(batch, "groups", '"group", kind, index, rank')) == [("7", "dp", 0, 3), ("7", "dp", 1, 9)]
    assert rows(batch, "steps", "data_wait, computing, communication, overlapped, exposed, free, preparing") == [
        (3_000, 10_000, 9_500, 5_500, 4_000, 36_000, None)
    ]
    assert sorted(rows(batch, "kernels", "type, core, stream")) == [
        ("ncclDevKernel_AllGather_RING_LL", "COMMUNICATION", 30),
        ("ncclDevKernel_SendRecv", "COMMUNICATION", 30),
        ("ncclDevKernel_SendRecv", "COMMUNICATION", 30),
        ("sum", "GPU", 7),
    ]
    assert rows(batch, "ranks", "max(device)") == [(2,)]


@pytest.mark.parametrize(
    ("ends", "last", "steps"),
    [
        ([("Adam", 30), ("Adam", 60)], 62, [(0, 10, 30), (1, 30, 60)]),
        ([("Adam", 30), ("Adam", 60)], 80, [(0, 10, 30), (1, 30, 60), (2, 60, 80)]),  # the last was not finished
        ([("Inner", 28), ("Outer", 30), ("Inner", 58), ("Outer", 60)], 61, [(0, 10, 30), (1, 30, 60)]),
        ([], 80, [(0, 10, 80)]),
    ],
    ids=["two", "cut off", "two optimizers", "none"],
)
def test_without_marks_a_step_ends_with_the_optimizers(
    ends: list[tuple[str, int]], last: int, steps: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    events = [span(f"Optimizer.step#{name}.step", "user_annotation", at - 1.0, 1.0) for name, at in ends]
    events += [span("gemm", "kernel", 10.0, 5.0, stream=7), span("gemm", "kernel", last - 1.0, 1.0, stream=7)]
    write(tmp_path / "a" / "trace.json", events, distributedInfo={"rank": 0, "world_size": 1})
    batch, _ = read_all(READER, tmp_path / "a", tmp_path)
    expected = [(number, start * 1000, end * 1000) for number, start, end in steps]
    assert sorted(rows(batch, "steps", 'step, start, "end"')) == expected


def test_sequence_counts_per_group_and_operation_where_the_recorded_one_repeats(tmp_path: Path) -> None:
    events = [nccl("ncclDevKernel_AllReduce_Sum", ts, 1.0, Seq=9) for ts in (30.0, 10.0, 20.0)]
    events.append(nccl("ncclDevKernel_AllReduce_Sum", 5.0, 1.0, **{"Process Group Name": "8"}))
    write(tmp_path / "a" / "rank_0.json", events)
    batch, _ = read_all(READER, tmp_path / "a", tmp_path)
    assert sorted(rows(batch, "collectives", '"group", start, sequence')) == [
        ("7", 10_000, 0),
        ("7", 20_000, 1),
        ("7", 30_000, 2),
        ("8", 5_000, 0),
    ]
    assert rows(batch, "steps", 'step, start, "end"') == [(0, 5_000, 31_000)]


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "strings"])
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_times_are_numbers_or_strings_and_absolute_or_relative_to_a_base(
    tmp_path: Path, text: bool, relative: bool
) -> None:
    base = 1_790_857_026_000_000_000
    first = 3_914_360.5 if relative else 1_790_857_029_914_360.5
    events = [span("aten::add", "cpu_op", str(first) if text else first, "2.5" if text else 2.5)]
    write(tmp_path / "a" / "rank-0.json", events, baseTimeNanoseconds=base)
    batch, parts = read_all(READER, tmp_path / "a", tmp_path)
    assert rows(batch, "events", "start, duration") == [(base + 3_914_360_500, 2_500)]
    assert int(parts[0].recorded) == base + 3_914_360_500


def test_memory_counters_and_tracks_are_read(tmp_path: Path) -> None:
    sample = {"Device Id": 0, "Bytes": 512, "Total Allocated": 2048, "Total Reserved": 4096}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python3"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "thread 1 (main) "}},
        span("aten::add", "cpu_op", 1.0, 2.0),
        {"ph": "i", "name": "[memory]", "ts": 3.0, "args": sample | {"Device Type": 1}},
        {"ph": "i", "name": "[memory]", "ts": 4.0, "args": sample | {"Device Type": 0}},
        {"ph": "C", "name": "GPU clock", "ts": 5.0, "args": {"MHz": 1410, "volts": 0.9, "why": "text"}},
    ]
    write(tmp_path / "a" / "rank0.json", events)
    batch, _ = read_all(READER, tmp_path / "a", tmp_path)
    assert rows(batch, "memory", "kind, name, time, size, allocated, reserved") == [
        ("sample", "GPU 0", 3_000, 512, 2048, 4096)
    ]
    assert sorted(rows(batch, "counters", "name, series, time, value")) == [
        ("GPU clock", "MHz", 5_000, 1410.0),
        ("GPU clock", "volts", 5_000, 0.9),
    ]
    assert rows(batch, "events", "track") == [("python3/thread 1 (main)",)]


def test_host_records_are_used_for_collectives_only_without_kernels(tmp_path: Path) -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "dtype": "Float"}
    host = [
        span("record_param_comms", "cpu_op", 1.0, 2.0, **told),
        span("record_param_comms", "cpu_op", 3.0, 2.0, **{"Collective name": "wait"}),
    ]
    write(tmp_path / "host" / "rank0.json", host)
    write(tmp_path / "both" / "rank0.json", [*host, nccl("ncclDevKernel_AllReduce_Sum", 2.0, 9.0)])
    without, _ = read_all(READER, tmp_path / "host", tmp_path)
    assert rows(without, "collectives", "op, start, bytes") == [("all_reduce", 1_000, 40)]
    with_kernel, _ = read_all(READER, tmp_path / "both", tmp_path)
    assert rows(with_kernel, "collectives", "op, start, duration") == [("all_reduce", 2_000, 9_000)]


# -- who is who -------------------------------------------------------------------------------------------------------


def test_ranks_come_from_metadata_then_names_then_order(tmp_path: Path) -> None:
    events = [span("aten::add", "cpu_op", 1.0, 2.0)]
    write(tmp_path / "a.json", events)
    write(tmp_path / "b.json", events, distributedInfo={"rank": "5", "world_size": 6})
    write(tmp_path / "c" / "rank-3" / "trace.json", events)
    write(tmp_path / "d_1.pt.trace.json", events, distributedInfo={"rank": -4})
    write(tmp_path / "e.json", events, distributedInfo="unavailable")
    parts = {part.root: part for part in READER.find(walk(tmp_path))}
    assert {root: part.rank for root, part in parts.items()} == {
        "a.json": 0,
        "b.json": 5,
        "c/rank-3/trace.json": 3,
        "d_1.pt.trace.json": 1,
        "e.json": 2,
    }
    assert tuple(map(str, parts["a.json"].notes)) == (
        "a.json does not record its rank; assumed to be rank 0",
        "the job has 6 ranks; no trace was found of 1 of them: 4",
    )
    assert tuple(map(str, parts["d_1.pt.trace.json"].notes)) == ("distributedInfo has the invalid rank -4; ignored",)
    assert "is invalid" in str(parts["e.json"].notes[0])


def test_metadata_behind_the_events_counts_too(tmp_path: Path) -> None:
    document = {
        "traceEvents": [span("aten::add", "cpu_op", 1.0, 2.0, list=[1])],
        "distributedInfo": {"rank": 6},
        "INFO": ["a] b", "c"],
    }
    (tmp_path / "trace.json").write_text(json.dumps(document))
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert [part.rank for part in parts] == [6]
    assert rows(batch, "events", "count(*)") == [(1,)]


def test_a_bare_list_is_torchs_unless_it_is_ascends(tmp_path: Path) -> None:
    torch = [span("aten::add", "cpu_op", 1.0, 2.0)]
    ascend = [*torch, {"ph": "M", "name": "process_name", "args": {"name": "Ascend Hardware"}}]
    for name, events in {
        "rank0.json": torch,
        "ASCEND_PROFILER_OUTPUT/other.json": torch,
        "trace_view.json": torch,
        "msprof_20240101.json": torch,
        "ascend_timeline_display_0.json": torch,
        "renamed.json": ascend,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(events))
    (tmp_path / "manifest.json").write_text('{"schemaVersion": 2, "layers": []}')
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert [part.root for part in parts] == ["rank0.json"]
    assert rows(batch, "events", "name, start") == [("aten::add", 1_000)]


def test_begins_and_ends_are_spans(tmp_path: Path) -> None:
    """Chrome's other notation: nested calls of two threads; one never ends, one end has no begin."""

    def mark(phase: str, time: float, name: str = "", thread: int = 1) -> dict[str, object]:
        return {"ph": phase, "name": name, "cat": "cpu_op", "pid": 1, "tid": thread, "ts": time}

    marks = [
        mark("E", 0.5),
        mark("B", 1, "aten::linear"),
        mark("B", 2, "aten::mm"),
        mark("B", 2, "aten::add", 2),
        mark("E", 3),
        mark("B", 3, "aten::t"),
        mark("E", 4),
        mark("E", 5, "aten::add", 2),
        mark("E", 7),
        mark("B", 8, "aten::open"),
    ]
    write(tmp_path / "rank-0.json", [*marks, span("aten::relu", "cpu_op", 8.0, 1.0)])
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert sorted(rows(batch, "events", "name, duration")) == [
        ("aten::add", 3_000),
        ("aten::linear", 6_000),
        ("aten::mm", 1_000),
        ("aten::relu", 1_000),
        ("aten::t", 1_000),
    ]
    assert {name for (name,) in rows(batch, "host_calls", "name")} >= {"aten::linear", "aten::mm"}


# -- hostile input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_is_said_once(packed: bool, tmp_path: Path) -> None:
    """Three sections read the file, and its end is looked at besides."""
    events = [span("aten::add", "cpu_op", float(index), 1.0) for index in range(3000)]
    whole = write(tmp_path / "rank-0.json", events).read_bytes()
    (tmp_path / "rank-0.json").unlink()
    name = "rank-0.json.gz" if packed else "rank-0.json"
    content = gzip.compress(whole) if packed else whole
    (tmp_path / name).write_bytes(content[: len(content) * 9 // 10])
    with paceline.open(tmp_path, store=tmp_path / "store") as run:
        run.load(["kernels", "events", "steps"])
        assert [warning.message for warning in run.warnings if "cut" in str(warning)] == [str(CUT_OFF)]


def test_cut_off_files_are_read_up_to_the_cut_and_say_so(tmp_path: Path) -> None:
    events = [span("aten::add", "cpu_op", float(index), 1.0) for index in range(3000)]
    whole = write(tmp_path / "rank-0.json", events, distributedInfo={"rank": 0, "world_size": 5}).read_bytes()
    (tmp_path / "rank-1.json").write_bytes(whole.replace(b'"rank": 0', b'"rank": 1')[: len(whole) // 2])
    packed = gzip.compress(whole.replace(b'"rank": 0', b'"rank": 2'))
    (tmp_path / "rank-2.json.gz").write_bytes(packed[: len(packed) * 9 // 10])
    (tmp_path / "rank-3.json.gz").write_bytes(gzip.compress(whole.replace(b'"rank": 0', b'"rank": 3')))
    bomb = whole[:-1] + b" " * (80 << 20) + b"}"
    (tmp_path / "rank-4.json.gz").write_bytes(gzip.compress(bomb.replace(b'"rank": 0', b'"rank": 4'), 9))
    batch, _ = read_all(READER, tmp_path, tmp_path)
    read = dict(rows(batch, "events", "rank, count(*)", "true GROUP BY rank"))
    assert read.keys() == {0, 1, 2, 3} and read[0] == read[3] == 3000
    assert 1400 < read[1] < 1600 and 2000 < read[2] < 3000
    messages = {warning.file: warning.message for warning in batch.warnings}
    assert "cut off" in messages["rank-1.json"]
    assert "everything before the cut is read" in messages["rank-2.json.gz"]
    assert "refused" in messages["rank-4.json.gz"]


def test_values_of_the_wrong_type_are_nulls_and_not_failures(tmp_path: Path) -> None:
    events = [
        span("aten::add", "cpu_op", 1.0, 2.0),
        span("aten::sub", "cpu_op", "soon", 2.0),
        {"ph": "X", "name": {"a": 1}, "cat": 5, "ts": [1], "dur": None, "args": "text"},
        nccl("ncclDevKernel_AllReduce_Sum", 3.0, 1.0, **{"In msg nelems": "many", "dtype": 7, "Seq": "x"}),
    ]
    write(tmp_path / "a" / "rank0.json", events, distributedInfo={"rank": 0, "pg_config": {"0": []}, "world_size": []})
    batch, parts = read_all(READER, tmp_path / "a", tmp_path)
    assert not batch.warnings
    assert sorted(rows(batch, "events", "name")) == [("aten::add",), ("ncclDevKernel_AllReduce_Sum",)]
    assert rows(batch, "collectives", "sequence, bytes") == [(0, None)]
    assert len(parts[0].notes) == 2


def test_sections_can_be_sent_to_another_process(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", [span("aten::add", "cpu_op", 1.0, 2.0)])
    (part,) = READER.find(walk(tmp_path))
    sent = pickle.loads(pickle.dumps(part))
    assert [section.read.func for section in sent.sections] == [section.read.func for section in part.sections]
    assert [section.read.args for section in sent.sections] == [section.read.args for section in part.sections]
