"""MindData pipelines: real ones, MindInsight's four bottleneck patterns, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.minddata.pipeline import minddata_sections
from paceline.formats.minddata.queues import batches, dequeues
from paceline.run.tables.batch import BatchSink
from paceline.storage.file_tree import Tree, walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

REAL = FIXTURES / "mindspore-2.10-cpu" / "minddata_cpu"
PATTERNS = FIXTURES / "mindinsight-tests" / "tests" / "ut" / "profiler" / "analyser" / "resource"
RUN_2 = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "run_2" / "normal_run" / "profiler"
ORACLE = FIXTURES / "mindspore-2.10-cpu" / "oracle"

OPERATORS = "op_id, op, parent, workers, queue_size, queue_capacity, queue_empty"


class OneRank:
    """A reader of nothing but one rank's MindData files, wherever they lie."""

    name = "minddata"

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def find(self, tree: Tree) -> Any:
        files = {file.name: file for file in tree.files}
        sections: list[RecordingSection] = minddata_sections(files, self.rank)
        return iter([RankRecording("minddata", self.rank, "", tuple(sections))])


def read(directory: Path, tmp_path: Path, rank: int = 0) -> BatchSink:
    return read_all(OneRank(rank), directory, tmp_path)[0]


# -- real recordings --------------------------------------------------------------------------------------------------


@needs_fixtures
@pytest.mark.parametrize("part", ["FRAMEWORK", "ASCEND_PROFILER_OUTPUT"])
def test_a_real_pipeline_reads_the_same_from_raw_and_from_processed_files(part: str, tmp_path: Path) -> None:
    batch = read(REAL / part, tmp_path)
    assert not batch.warnings
    assert rows(batch, "input_pipeline", OPERATORS) == [
        (0, "Repeat", None, 1, None, None, None),
        (1, "Batch", 0, 2, 0.0, 16, 1.0),
        (2, "Map", 1, 2, 0.0, 16, 1.0),
        (3, "Generator", 2, 1, pytest.approx(44 / 3), 16, 0.0),
    ]
    assert [cpu for (cpu,) in rows(batch, "input_pipeline", "cpu")] == pytest.approx([0, 1 / 3, 7, 8 / 3], abs=0.005)


@needs_fixtures
def test_a_real_iterator_file_has_a_row_per_batch(tmp_path: Path) -> None:
    batch = read(REAL, tmp_path)
    text = (REAL / "FRAMEWORK" / "dataset_iterator_profiling_0.txt").read_text()
    lines = [line.split() for line in text.splitlines()]
    totals = {int(step): int(value) for kind, sub, step, value, _ in lines if (kind, sub) == ("0", "2")}
    assert dict(rows(batch, "input_steps", "step, total_time // 1000000", "queue = 'iterator'")) == totals
    sizes = {int(step): int(value) for kind, _, step, value, _ in lines if kind == "1"}
    assert dict(rows(batch, "input_steps", "step, size")) == sizes
    assert rows(batch, "input_steps", "DISTINCT queue, capacity, push_time") == [("iterator", 16, 0)]
    assert rows(batch, "input_steps", "time", "step = 1") == [(3445457 * 10**6,)]


@needs_fixtures
@pytest.mark.parametrize(
    ("rank", "sizes"),
    [(0, (10, 60, 20, 20)), (1, (20, 10, 60, 60)), (2, (60, 60, 60, 60)), (3, (10, 10, 10, 10))],
    ids=["shuffle slow", "middle slow", "root slow", "reader slow"],
)
def test_the_four_bottleneck_patterns_of_mindinsight_are_read_exactly(
    rank: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    batch = read(PATTERNS, tmp_path, rank)
    assert sorted(rows(batch, "input_pipeline", OPERATORS)) == [
        (0, "Batch", None, 4, None, None, None),
        (1, "Shuffle", 4, 1, sizes[1], 64, 0.0),
        (2, "TFReader", 1, 4, sizes[2], 64, 0.0),
        (3, "TFReader", 1, 4, sizes[3], 64, 0.0),
        (4, "Shuffle", 0, 1, sizes[0], 64, 0.0),
    ]
    assert rows(batch, "input_pipeline", "DISTINCT rank") == [(rank,)]


@needs_fixtures
def test_all_queues_of_an_old_run_are_read_with_their_units(tmp_path: Path) -> None:
    batch = read(RUN_2, tmp_path, rank=1)
    assert not batch.warnings
    columns = "queue, step, size, capacity, get_time, push_time, total_time, time"
    assert sorted(rows(batch, "input_steps", columns), key=str) == [
        ("device_queue", 1, 0, 64, 0, 4_000_000, 4_000_000, 10_000_000),
        ("get_next", 1, 3, None, 1_000, None, None, 154907895305_000),
        ("get_next", 2, 2, None, 0, None, None, 154907895614_000),
        ("get_next", 3, 1, None, 1_000, None, None, 154907896920_000),
        ("iterator", 1, 3, 64, None, None, None, None),
    ]
    # The raw file is preferred: it has the root that the processed one leaves out.
    assert rows(batch, "input_pipeline", "op, cpu", "op_id IN (1, 4)") == [("Map", 40.0), ("EpochCtrl", None)]


@needs_fixtures
def test_dataset_csv_is_taken_whatever_the_rank(tmp_path: Path) -> None:
    batch = read(ORACLE, tmp_path, rank=5)
    assert rows(batch, "input_pipeline", "rank, op, stage, count, time") == [(5, "Pipeline", "first", 1, 20_000)]


# -- self-made files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Avg. time (us)", "Avg.time(us)"])
def test_dataset_csv_header_is_spelled_with_or_without_spaces(header: str, tmp_path: Path) -> None:
    text = f"Operation,Stage,Occurrences,{header},Custom Info\nPipeline,push,4,2.5,\"{{'a': 1}}\"\n"
    (tmp_path / "dataset.csv").write_text(text)
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "input_pipeline", "op, stage, count, time") == [("Pipeline", "push", 4, 10_000)]


def test_files_of_other_ranks_are_ignored(tmp_path: Path) -> None:
    for name in ("pipeline_profiling_11.json", "minddata_pipeline_raw_21.csv", "device_queue_profiling_10.txt"):
        (tmp_path / name).write_text("never read")
    assert minddata_sections({file.name: file for file in walk(tmp_path).files}, 1) == []


def test_a_summary_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "minddata_pipeline_summary_0.csv").write_text(
        "op_ids,0,1\nop_names,Batch,Map\nnum_workers,4,8\nqueue_average_size,-1,2.5\nqueue_empty_freq_pct,-1,40.0\n"
        "parent_id,-1,0\navg_cpu_pct,1.5,20.0\nbottleneck_warning,\n"
    )
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "input_pipeline", "op_id, op, parent, workers, queue_size, queue_empty, cpu") == [
        (0, "Batch", None, 4, None, None, 1.5),
        (1, "Map", 0, 8, 2.5, 0.4, 20.0),
    ]


def test_a_damaged_extra_file_costs_a_warning_and_not_the_operators(tmp_path: Path) -> None:
    operators = {"op_info": [{"op_id": 0, "op_type": "BatchOp", "num_workers": 4, "metrics": None, "children": None}]}
    (tmp_path / "pipeline_profiling_0.json").write_text(json.dumps(operators))
    (tmp_path / "minddata_cpu_utilization_0.json").write_text('{"op_info": [{"op_id": 0, "metr')
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "input_pipeline", "op, workers, cpu") == [("Batch", 4, None)]
    assert [warning.file for warning in batch.warnings] == ["minddata_cpu_utilization_0.json"]


def test_a_damaged_pipeline_file_names_file_and_line(tmp_path: Path) -> None:
    header = "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length,"
    header += "output_queue_usage_rate,sample_interval,parent_id,children_id\n"
    (tmp_path / "minddata_pipeline_raw_0.csv").write_text(header + "0,Batch,4,,,,,10,,\n1,Map,4,[1,\n")
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "input_pipeline") == []
    assert [(warning.file, warning.line) for warning in batch.warnings] == [("minddata_pipeline_raw_0.csv", 3)]


def test_lines_that_are_no_readings_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "device_queue_profiling_0.txt").write_text("0 0 1 7 10\ngarbage\n1 64 1 3 10\n0 9 1 1 1\n1 64 2")
    batch = read(tmp_path, tmp_path)
    assert rows(batch, "input_steps", "step, get_time, size") == [(1, 7_000_000, 3)]
    (warning,) = batch.warnings
    assert (warning.line, warning.message.split()[0]) == (2, "3")


words = st.one_of(
    st.integers(-5, 5).map(str), st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=4)
)
lines = st.lists(st.lists(words, min_size=1, max_size=6), max_size=20).map(lambda found: list(enumerate(found, 1)))


@given(lines)
def test_queue_parsers_take_or_refuse_every_line(numbered: list[tuple[int, list[str]]]) -> None:
    for parse in (batches, lambda found, bad: dequeues(found, bad, unit=1000)):
        bad: list[int] = []
        found = list(parse(numbered, bad))
        assert bad == sorted(set(bad))
        assert len(found) <= len(numbered) - len(bad)
        assert all(isinstance(value, int) for row in found for value in row.values())


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 5), max_size=30))
def test_every_batch_comes_back_from_its_lines(values: list[tuple[int, ...]]) -> None:
    numbered = []
    for step, (get, push, capacity, size, time) in enumerate(values, 1):
        for line in (
            f"0 1 {step} {push} {time}",
            f"0 2 {step} {get + push} {time}",
            f"0 0 {step} {get} {time}",
            f"1 {capacity} {step} {size} {time}",
        ):
            numbered.append((len(numbered) + 1, line.split()))
    assert list(batches(numbered, [])) == [
        {
            "step": step,
            "push_time": push * 10**6,
            "total_time": (get + push) * 10**6,
            "get_time": get * 10**6,
            "capacity": capacity,
            "size": size,
            "time": time * 10**6,
        }
        for step, (get, push, capacity, size, time) in enumerate(values, 1)
    ]
