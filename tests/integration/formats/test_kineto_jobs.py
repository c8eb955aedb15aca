"""torch traces that mark no step, and traces in one directory that are no ranks of one job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.formats.kineto.reader import READER
from paceline.storage.file_tree import walk
from support.reader_helpers import read_all, rows

NOON = 1.75e15
"""µs since 1970."""


def events_of(begin: float, *, steps: int = 3, marked: bool = False, host_ahead: float = 0.0) -> list[dict[str, Any]]:
    """A loop of 12 kernels and 4 equal layers; the host launches a step in 500 µs, the device needs 900 µs."""
    program = ["embed", *(["qkv", "attention", "mlp"] * 4), *[f"head{at}" for at in range(12)]]
    found: list[dict[str, Any]] = []
    device = begin
    for step in range(steps):
        host = begin + step * (500 if host_ahead else 1000)
        if marked:
            found.append(span(f"ProfilerStep#{step}", "user_annotation", host, 490, pid=1))
        for at, name in enumerate(program):
            launch, correlation = host + 10 * at, step * 100 + at + 1
            found.append(span("cudaLaunchKernel", "cuda_runtime", launch, 5, pid=1, correlation=correlation))
            device = max(device, launch + 5)
            found.append(span(name, "kernel", device, 30, pid=0, correlation=correlation, stream=7, device=0))
            device += 30
    return found


def span(name: str, category: str, start: float, duration: float, *, pid: int, **args: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 1, "ts": start, "dur": duration, "args": args}


def write(path: Path, events: list[dict[str, Any]], **head: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"schemaVersion": 1, "deviceProperties": [], **head, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_steps_that_nobody_marked_are_what_the_program_repeats_and_that_is_said(tmp_path: Path) -> None:
    write(tmp_path / "run" / "trace.json", events_of(NOON, host_ahead=1))
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    found = sorted(rows(batch, "steps", "step, computing, duration"))
    assert [step for step, *_ in found] == [0, 1, 2]
    assert [computing for _, computing, _ in found] == [25 * 30_000] * 3
    assert all(duration == pytest.approx(750_000, abs=20_000) for *_, duration in found)
    assert rows(batch, "kernels", "step, count(*)", "true GROUP BY step ORDER BY step") == [(0, 25), (1, 25), (2, 25)]
    [warning] = batch.warnings
    assert "no step is marked; 3 steps are inferred" in warning.message


def test_marked_steps_are_not_inferred(tmp_path: Path) -> None:
    write(tmp_path / "run" / "trace.json", events_of(NOON, marked=True))
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert len(rows(batch, "steps", "step")) == 3 and not batch.warnings


def test_a_loop_on_the_host_alone_is_recovered_from_its_operators(tmp_path: Path) -> None:
    events = [{**each, "cat": "cpu_op"} for each in events_of(NOON, steps=4) if each["cat"] == "kernel"]
    write(tmp_path / "run" / "trace.json", events)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert [step for (step,) in sorted(rows(batch, "steps", "step"))] == [0, 1, 2, 3]


@pytest.mark.parametrize("end", [".json", ".json.gz"])
def test_benchmarks_that_ran_one_after_the_other_are_no_cluster(tmp_path: Path, end: str) -> None:
    for at, name in enumerate(["gemm_a", "gemm_b", "gemm_c"]):
        write(tmp_path / "run" / f"{name}{end}", events_of(NOON + at * 1e7, marked=True))
    [part] = list(READER.find(walk(tmp_path / "run")))
    assert (part.rank, part.root) == (0, f"gemm_c{end}")
    assert [note for note in map(str, part.notes) if "2 other traces" in note and f"gemm_a{end}" in note]


def test_traces_of_different_cards_are_no_cluster(tmp_path: Path) -> None:
    for name in ("H100", "MI300X"):
        write(tmp_path / "run" / f"{name}.json", events_of(NOON), deviceProperties=[{"id": 0, "name": name}])
    assert len(list(READER.find(walk(tmp_path / "run")))) == 1


def test_traces_that_overlap_in_time_are_ranks(tmp_path: Path) -> None:
    for name in ("left", "right"):
        write(tmp_path / "run" / f"{name}.json", events_of(NOON + len(name)))
    assert [part.rank for part in READER.find(walk(tmp_path / "run"))] == [0, 1]


def test_traces_with_ranks_are_ranks_whenever_they_were_recorded(tmp_path: Path) -> None:
    for rank in range(2):
        info = {"rank": rank, "world_size": 2}
        write(tmp_path / "told" / f"{rank}x.json", events_of(NOON + rank * 1e7), distributedInfo=info)
        write(tmp_path / "named" / f"rank{rank}" / "trace.json", events_of(NOON + rank * 1e7))
    for name in ("told", "named"):
        assert [part.rank for part in READER.find(walk(tmp_path / name))] == [0, 1]


def test_a_trace_of_another_time_beside_a_job_is_left_out(tmp_path: Path) -> None:
    for rank in range(2):
        info = {"rank": rank, "world_size": 2}
        write(tmp_path / "run" / f"w{rank}.json", events_of(NOON), distributedInfo=info)
    write(tmp_path / "run" / "old.json", events_of(NOON - 1e9))
    parts = list(READER.find(walk(tmp_path / "run")))
    assert sorted(part.root for part in parts) == ["w0.json", "w1.json"]
    assert any("old.json" in note for part in parts for note in map(str, part.notes))


# -- odd recordings -----------------------------------------------------------------------------------------------------


def test_steps_that_only_the_device_s_tracks_mark_keep_their_numbers(tmp_path: Path) -> None:
    marks = [
        span(f"ProfilerStep#{step + 5}", "gpu_user_annotation", NOON + 1000 * step, 800, pid=0) for step in range(3)
    ]
    work = [each for each in events_of(NOON) if each["cat"] == "kernel"]
    write(tmp_path / "run" / "trace.json", [*work, *marks])
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    found = sorted(rows(batch, "steps", "step, computing, duration"))
    assert found == [(5, 750_000, 1_000_000), (6, 750_000, 1_000_000), (7, 750_000, 800_000)]
    assert not batch.warnings


def test_an_event_of_another_year_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    lost = span("mlp", "kernel", NOON + 1e12, 30, pid=0, stream=7, device=0)
    write(tmp_path / "run" / "trace.json", [*events_of(NOON, marked=True), lost])
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert max(duration for (duration,) in rows(batch, "steps", "duration")) < 2_000_000
    [warning] = batch.warnings
    assert warning.message.startswith("1 events are up to 277.") and "they are left out" in warning.message


def test_work_of_two_devices_in_one_trace_is_not_that_of_a_card(tmp_path: Path) -> None:
    events = events_of(NOON, marked=True)
    for event in events[::2]:
        if event["cat"] == "kernel":
            event["args"]["device"] = 1
    write(tmp_path / "run" / "trace.json", events, deviceProperties=[{"id": each, "name": "V100"} for each in (0, 1)])
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    [warning] = batch.warnings
    assert warning.message.startswith("work of 2 devices (0, 1) is in one trace")
    assert rows(batch, "ranks", "card", "card IS NOT NULL") == [("V100",)]


def test_a_recording_of_python_functions_only_says_nothing_of_the_device(tmp_path: Path) -> None:
    events = [span(f"train.py({at}): step", "python_function", NOON + 100 * at, 90, pid=1) for at in range(20)]
    write(tmp_path / "run" / "trace.json", events)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert rows(batch, "steps", "computing, free") == [(None, None)]
    [warning] = batch.warnings
    assert warning.message.startswith("only the host was recorded")


@pytest.mark.parametrize(
    ("valid", "written"),
    [
        (b"attention", rb"C:\Users\x"),  # torch does not escape what it finds in paths
        (b"attention", b"atten\xfftion"),
        (b"attention", rb"atten\ud83d"),
        (b'"stream": 7, "device": 0}}]', b'"stream": 7, "device": 0}},]'),
    ],
)
def test_json_that_is_not_valid_is_repaired(valid: bytes, written: bytes, tmp_path: Path) -> None:
    whole = tmp_path / "run" / "trace.json"
    write(whole, events_of(NOON, marked=True), traceName="C:/x")
    content = whole.read_bytes().replace(valid, written).replace(b"C:/x", rb"C:\Temp\x")
    assert written in content
    whole.write_bytes(content)
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert not batch.warnings
    assert rows(batch, "steps", "count(*), sum(computing)") == [(3, 3 * 25 * 30_000)]
    assert rows(batch, "events", "count(*)") == [(3 * 51,)]


def test_a_small_packed_trace_that_was_cut_off_is_recognised(tmp_path: Path) -> None:
    write(tmp_path / "run" / "trace.json.gz", events_of(NOON, marked=True))
    path = tmp_path / "run" / "trace.json.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert len(parts) == 1 and "everything before the cut is read" in batch.warnings[0].message
