"""FRAMEWORK/ of MindSpore on a CPU: sums that agree, AllReduce on two ranks, damaged lines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.schema import TABLES
from paceline.formats.base import RankRecording
from paceline.formats.mindspore_cpu.sections import communicates, cpu_sections
from paceline.run.tables.batch import BatchSink, open_batch
from paceline.storage.file_tree import Tree, walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

RECORDINGS = sorted((FIXTURES / "mindspore-2.10-cpu").glob("*/*/*/FRAMEWORK"))


class CpuFiles:
    name = "mindspore_cpu"

    def find(self, tree: Tree) -> Any:
        files = {file.name: file for file in tree.files}
        rank = next((rank for rank in range(4) if f"cpu_op_execute_timestamp_{rank}.txt" in files), 0)
        return iter([RankRecording(self.name, rank, "", tuple(cpu_sections(files, rank)))])


def read(directory: Path, tmp_path: Path) -> BatchSink:
    return read_all(CpuFiles(), directory, tmp_path)[0]


@needs_fixtures
@pytest.mark.parametrize("directory", RECORDINGS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2].split('_')[1]}")
def test_kernel_durations_add_up_to_what_mindspore_summed(directory: Path, tmp_path: Path) -> None:
    batch = read(directory, tmp_path)
    assert not batch.warnings
    (detail,) = directory.glob("cpu_op_detail_info_*.csv")
    with detail.open() as text:
        expected = {row["full_op_name"]: row for row in csv.DictReader(text)}
    found = rows(batch, "kernels", "name, any_value(type), count(*), sum(duration)", "true GROUP BY name")
    assert {name for name, *_ in found} == set(expected)
    for name, kind, count, time in found:
        assert (kind, count) == (expected[name]["op_type"], int(expected[name]["op_occurrences"]))
        # Both sides were written with six significant digits.
        assert time == pytest.approx(float(expected[name]["op_total_time(ms)"]) * 1e6, rel=1e-5)
    by_name = rows(batch, "operators", "sum(count), sum(time)", "level = 'name'")
    by_type = rows(batch, "operators", "sum(count), sum(time)", "level = 'type'")
    assert by_name[0][0] == by_type[0][0]
    assert by_name[0][1] == pytest.approx(by_type[0][1], rel=1e-5)


@needs_fixtures
@pytest.mark.parametrize("mode", ["graph", "py"])
def test_all_reduce_of_two_ranks_joins_and_the_late_rank_waits_least(mode: str, tmp_path: Path) -> None:
    ranks: dict[int, dict[int, tuple[str, int, int]]] = {}
    for directory in (FIXTURES / "mindspore-2.10-cpu" / "ms_dist" / mode).glob("*/FRAMEWORK"):
        batch = read(directory, tmp_path)
        found = rows(batch, "collectives", 'rank, sequence, name, start, duration, op, "group"')
        assert {(op, group) for *_, op, group in found} == {("all_reduce", None)}
        ranks[found[0][0]] = {sequence: (name, start, start + time) for _, sequence, name, start, time, *_ in found}
    assert set(ranks) == {0, 1}
    assert set(ranks[0]) == set(ranks[1]) == set(range(12))
    for sequence, (name, start, end) in ranks[0].items():
        other, other_start, other_end = ranks[1][sequence]
        assert name == other
        # An AllReduce can only end after both have arrived.
        assert min(end, other_end) > max(start, other_start)


@needs_fixtures
def test_memory_samples_are_bytes_at_exact_times(tmp_path: Path) -> None:
    directory = next(path for path in RECORDINGS if any(path.glob("cpu_ms_memory_record_*")))
    batch = read(directory, tmp_path)
    (record,) = directory.glob("cpu_ms_memory_record_*.txt")
    with record.open() as text:
        expected = [tuple(map(int, row)) for row in list(csv.reader(text))[1:]]
    assert rows(batch, "memory", "time, allocated, reserved, active") == expected
    assert rows(batch, "memory", "DISTINCT rank, kind, name") == [(0, "sample", "MindSpore")]


def test_damaged_executions_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = (
        "Default/Mul-op0;HostCpuOps;100,0.5,0 x,1,0 200\r\n\nDefault/AllGather-op1;HostCpuOps;300,0.25,0 \nDefault/Su"
    )
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text(text)
    batch = read(tmp_path, tmp_path)
    assert sorted(rows(batch, "kernels", "name, core, start, duration")) == [
        ("Default/AllGather-op1", "COMMUNICATION", 300, 250_000),
        ("Default/Mul-op0", "HOST_CPU", 100, 500_000),
    ]
    assert rows(batch, "collectives", "op, sequence") == [("all_gather", 0)]
    assert [warning.message.split()[0] for warning in batch.warnings] == ["3"]


def test_marked_steps_are_split_and_own_what_starts_in_them(tmp_path: Path) -> None:
    """Two steps of 1,000 ns; the AllReduce begins 100 ns before the Mul of step 4 ends. Times in the files: ns, ms, µs."""
    text = (
        "Default/Mul-op0;HostCpuOps;10100,0.0003,0 11100,0.0003,0 12500,0.0001,0\n"
        "Default/AllReduce-op1;HostCpuOps;10500,0.0002,0 11300,0.0002,0\n"
    )
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_text(text)
    marks = [(3, "10.000"), (4, "11.000")]
    events = ",".join(
        f'{{"name":"ProfilerStep#{n}","ph":"X","pid":0,"tid":0,"ts":"{ts}","dur":"1.000"}}' for n, ts in marks
    )
    (tmp_path / "trace_view.json").write_text(f"[{events}]")
    batch = read(tmp_path, tmp_path)
    columns = 'step, start, "end", computing, communication, overlapped, exposed, free'
    assert rows(batch, "steps", columns) == [
        (3, 10_000, 11_000, 300, 200, 0, 200, 500),
        (4, 11_000, 12_000, 300, 200, 100, 100, 600),
    ]
    assert sorted(rows(batch, "kernels", "start, step")) == [
        (10_100, 3),
        (10_500, 3),
        (11_100, 4),
        (11_300, 4),
        (12_500, None),
    ]
    assert rows(batch, "collectives", "step, sequence") == [(3, 0), (4, 1)]


def test_a_sum_that_is_no_number_names_file_and_line(tmp_path: Path) -> None:
    header = "op_type,type_occurrences,execution_frequency(per-step),total_compute_time,avg_time(ms),percent\n"
    (tmp_path / "cpu_op_type_info_0.csv").write_text(header + "ReLU,3,1,0.5,0.1,0.2\nMul,3,1,lots,0.1,0.2\n")
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "operators") == []
    assert [(warning.file, warning.line) for warning in batch.warnings] == [("cpu_op_type_info_0.csv", 3)]


def test_tensor_operators_are_no_communication() -> None:
    tensor = ["Gather", "ReduceSum", "BroadcastTo", "ScatterNd", "Reduce", "Send2D", "GatherD", "AllFinite"]
    network = [
        "AllReduce",
        "AllGather",
        "ReduceScatter",
        "Broadcast",
        "AlltoAll",
        "AlltoAllV",
        "Send",
        "Receive",
        "InnerCommAllReduce",
        "DistCommIrecv",
        "CollectiveGather",
        "Barrier",
        "NeighborExchangeV2",
    ]
    assert [name for name in tensor if communicates(name)] == []
    assert [name for name in network if not communicates(name)] == []


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
runs = st.lists(st.tuples(st.integers(1, 2**62), st.integers(0, 10**12)), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(names, runs, min_size=1, max_size=5))
def test_every_execution_comes_back_from_its_line(tmp_path_factory: pytest.TempPathFactory, operators: Any) -> None:
    directory = tmp_path_factory.mktemp("cpu")
    path = directory / "cpu_op_execute_timestamp_0.txt"
    lines = [
        f"Default/{name}-op1;HostCpuOps;" + "".join(f"{start},{time / 1e6:.6f},0 " for start, time in found)
        for name, found in operators.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    tree = walk(directory)
    batch = open_batch(tree, directory, directory, content="0" * 8)
    batch.begin(unit=1, rank=0, wanted=frozenset(TABLES))
    (section,) = cpu_sections(tree.directories[""], 0)
    section.read(batch)
    batch.commit()
    assert sorted(rows(batch, "kernels", "type, start, duration")) == sorted(
        (name, start, time) for name, found in operators.items() for start, time in found
    )
