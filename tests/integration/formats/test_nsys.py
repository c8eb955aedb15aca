"""Nsight Systems reports: a real export, and small ones with what the real one lacks (NVTX, several processes, NCCL)."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.formats.nsys.reader import READER
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

REPORT = FIXTURES / "real" / "unread-formats" / "nsys_report1.sqlite"
EPOCH = 1_750_000_000_000_000_000
_SCHEMA = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER);
    CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, bytes INTEGER);
    CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER);
    CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
        globalTid INTEGER, domainId INTEGER, jsonText TEXT);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1750000000000000000);
    INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node7');
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'H100', 80000000000), (1, 'H100', 80000000000);
    INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
    INSERT INTO StringIds VALUES (1, 'void gemm<float>(float*)'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)'),
        (3, 'cudaLaunchKernel_v7000'), (4, 'layer 3');
    INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'NCCL', NULL, 0, 5, NULL);
"""
STEP, LAUNCH = 1000, 100


def write_report(path: Path, processes: Sequence[int] = (1,), *, steps: int = 3, variables: Sequence[str] = ()) -> Path:
    """Per process and step: a GEMM in an operator and a module range, an all-reduce inside NCCL's range, a copy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(_SCHEMA)
    for variable in variables:
        connection.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)", [variable])
    for device, number in enumerate(processes):
        process = number << 24
        thread = process + 77
        connection.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python')", [process, number])
        for step in range(steps):
            begin = 10_000 + step * STEP
            ranges: list[tuple[int, int, str | None, int | None, int, str | None]] = [
                (begin, begin + 900, f"ProfilerStep#{step}", None, 0, None),
                (begin + 100, begin + 300, None, 4, 0, None),
                (begin + 110, begin + 290, "aten::mm, seq = 5, sizes = [[8, 4], [4, 2]]", None, 0, None),
                (begin + 400, begin + 500, "ncclAllReduce", None, 5, '{"Message size [bytes]": 4096}'),
            ]
            connection.executemany(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?, ?, ?)",
                [(start, end, text, id, thread, domain, json) for start, end, text, id, domain, json in ranges],
            )
            work = [("KERNEL", 150, 1, 200, 7), ("KERNEL", 450, 2, 100, 13), ("MEMCPY", 600, 1, 50, 7)]
            for at, (table, offset, name, length, stream) in enumerate(work):
                correlation = step * 10 + at + 1
                connection.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 3)",
                    [begin + offset, begin + offset + 10, thread, correlation],
                )
                start = begin + offset + LAUNCH
                values = [start, start + length, device, stream, correlation, process, name]
                values += [512] if table == "MEMCPY" else []
                connection.execute(
                    f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES ({', '.join('?' * len(values))})", values
                )
    connection.commit()
    connection.close()
    return path


@needs_fixtures
def test_a_real_report_has_its_kernels_launches_and_clock(tmp_path: Path) -> None:
    batch, parts = read_all(READER, REPORT, tmp_path)
    assert [(part.rank, part.rank_assumed) for part in parts] == [(0, True)]
    assert not batch.warnings
    [(count, time, launched, first)] = rows(
        batch, "kernels", "count(*), sum(duration) / 1e9, count(launch), min(start)"
    )
    assert (count, time, launched) == (240, pytest.approx(10.652, abs=0.0005), 240)
    assert first == 1750958517769303727 + 1499318177
    assert rows(batch, "ranks", "DISTINCT device", "device IS NOT NULL") == [(0,)]
    calls = dict(rows(batch, "host_calls", "name, count"))
    assert calls["cudaLaunchKernel"] == 130 and calls["cuTensorMapEncodeTiled"] == 660


def test_ranges_give_steps_operators_modules_shapes_and_collectives(tmp_path: Path) -> None:
    batch, _ = read_all(READER, write_report(tmp_path / "run" / "report.sqlite"), tmp_path)
    found = sorted(rows(batch, "steps", "step, start, computing, communication, exposed, free, duration"))
    assert found == [(step, EPOCH + 10_000 + step * STEP, 250, 100, 100, 550, 900) for step in range(3)]
    where = "name LIKE 'void gemm%'"
    assert rows(batch, "kernels", "DISTINCT operator, module, input_shapes, type, stream", where) == [
        ("aten::mm", "layer 3", "8,4;4,2", "gemm", 7)
    ]
    collectives = sorted(rows(batch, "collectives", "step, op, sequence, bytes, duration"))
    assert collectives == [(step, "all_reduce", step, 4096, 100) for step in range(3)]
    assert rows(batch, "kernels", "DISTINCT name, type", "type = 'Memcpy'") == [("Memcpy Host-to-Device", "Memcpy")]
    tracks = {track for (track,) in rows(batch, "events", "DISTINCT track")}
    assert tracks == {"GPU 0/stream 7", "GPU 0/stream 13", f"python/{(1 << 24) + 77}"}


def test_each_process_with_device_work_is_a_rank_in_the_order_of_the_cards(tmp_path: Path) -> None:
    batch, parts = read_all(READER, write_report(tmp_path / "run" / "node.sqlite", (9, 4)), tmp_path)
    assert [(part.rank, part.rank_assumed) for part in parts] == [(0, True), (1, True)]
    assert sorted(rows(batch, "ranks", "DISTINCT rank, device", "device IS NOT NULL")) == [(0, 0), (1, 1)]
    assert sorted(rows(batch, "kernels", "rank, count(*)", "true GROUP BY rank")) == [(0, 9), (1, 9)]
    assert sorted(rows(batch, "steps", "rank, count(*)", "true GROUP BY rank")) == [(0, 3), (1, 3)]


def test_the_rank_is_that_of_the_environment_then_of_the_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_report(run / "a.sqlite", variables=['OMPI_COMM_WORLD_RANK="5"', 'OMPI_COMM_WORLD_SIZE="8"'])
    write_report(run / "profile_rank3.sqlite")
    _, parts = read_all(READER, run, tmp_path)
    assert sorted((part.rank, part.rank_assumed) for part in parts) == [(3, False), (5, False)]


def test_other_databases_and_damaged_ones_are_not_reports(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    connection = sqlite3.connect(run / "other.sqlite")
    connection.execute("CREATE TABLE x (y)")
    connection.commit()
    connection.close()
    (run / "text.sqlite").write_text("no database")
    whole = write_report(run / "whole.sqlite").read_bytes()
    (run / "whole.sqlite").unlink()
    (run / "cut.sqlite").write_bytes(whole[:5000])
    _, parts = read_all(READER, run, tmp_path)
    assert parts == []


def test_reports_are_exported_where_nsys_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "profile_rank2.nsys-rep").write_bytes(b"a report")
    assert read_all(READER, run, tmp_path)[1] == []
    export = write_report(tmp_path / "export.sqlite")
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "export --type sqlite" ] && cp {export} "$5"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    batch, parts = read_all(READER, run, tmp_path)
    assert [part.rank for part in parts] == [2]
    assert rows(batch, "kernels", "count(*)") == [(9,)]
