"""MindInsight's single files: steps, hccl_raw, memory, FLOPs, operators, timelines, and damaged ones of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.core.protobuf import fields
from paceline.formats.mindinsight.memory import memory_at
from paceline.formats.mindinsight.reader import READER
from paceline.run.tables.batch import BatchSink
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

RESOURCE = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource"
HEADER = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
GIB = 2**30


def _read(tmp_path: Path, **files: str | bytes) -> BatchSink:
    """Read files given by the stem of their names: hccl_raw_0_csv="…"."""
    for stem, content in files.items():
        name, _, suffix = stem.rpartition("_")
        path = tmp_path / f"{name.replace('__', '-')}.{suffix}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_all(READER, tmp_path, tmp_path)[0]


def _messages(batch: BatchSink) -> list[str]:
    return [warning.message for warning in batch.warnings]


# -- steps ------------------------------------------------------------------------------------------------------------

STEPS = "step, start, duration, data_wait, forward_backward, tail"


def test_steps_are_ticks_of_ten_nanoseconds_and_the_average_is_dropped(tmp_path: Path) -> None:
    text = f"{HEADER}\n1,100,300,200,100,250,0,150,50\n2,300,500,200,320,450,20,130,50\n-,7,7,7,7,7,7,7,7\n"
    batch = _read(tmp_path, step_trace_raw_0_detail_time_csv=text)
    # What precedes the first operator of the first step is not recorded: null, not 0.
    assert rows(batch, "steps", STEPS) == [(1, 1000, 2000, None, 1500, 500), (2, 3000, 2000, 200, 1300, 500)]


def test_columns_are_found_by_name_in_the_inference_variant(tmp_path: Path) -> None:
    text = (
        "step_num,start_point,end_point,total,fp_point,iteration_interval,fp\n4,100,300,200,120,20,180\n0,0,0,0,0,9,0\n"
    )
    assert rows(_read(tmp_path, step_trace_raw_0_detail_time_csv=text), "steps", STEPS) == [
        (4, 1000, 2000, 200, 1800, None)
    ]


@pytest.mark.parametrize(
    ("columns", "cells", "name", "op"),
    [
        (
            "stream_48_0_Receive-op6,stream_48_0_Receive-op6_start_point,stream_48_0_Receive-op6_end_point",
            "30,150,180",
            "Receive-op6",
            "receive",
        ),
        (
            "stream_5_parallel_0_start_point,stream_5_parallel_0_end_point,stream_5_parallel_0",
            "150,180,30",
            "stream_5_parallel_0",
            "other",
        ),
        (
            "stream_ops_0_AllReduce,stream_ops_0_AllReduce_start_point,stream_ops_0_AllReduce_end_point",
            "30,150,180",
            "AllReduce",
            "all_reduce",
        ),
    ],
)
def test_communication_columns_become_collectives(tmp_path: Path, columns: str, cells: str, name: str, op: str) -> None:
    text = f"{HEADER},{columns}\n3,100,300,200,120,250,20,130,50,{cells}\n4,300,400,100,300,350,0,50,50,0,0,0\n"
    batch = _read(tmp_path, step_trace_raw_0_detail_time_csv=text)
    assert rows(batch, "collectives", "step, name, op, sequence, start, duration, transit") == [
        (3, name, op, 3, 1500, 300, None)
    ]


def test_cut_off_rows_are_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = f"{HEADER}\n1,100,300,200,120,250,20,130,50\n2,300,5"
    batch = _read(tmp_path, step_trace_raw_0_detail_time_csv=text)
    assert rows(batch, "steps", "step") == [(1,)]
    assert batch.warnings[0].line == 3


@pytest.mark.parametrize("content", [b"", b"\n", b"a,b\n1,2\n", HEADER.encode() + b"\n1,\xff\xfe,3\n"])
def test_files_that_are_no_step_traces_become_warnings(tmp_path: Path, content: bytes) -> None:
    batch = _read(tmp_path, step_trace_raw_0_detail_time_csv=content)
    assert rows(batch, "steps") == []
    assert {warning.file for warning in batch.warnings} == {"step_trace_raw_0_detail_time.csv"}


ANALYSE = (
    "computation_time,communication_alone_time,stage_time,receive_alone_time,collective_communication_alone_time\n"
)


@pytest.mark.parametrize(
    ("count", "computing", "said"),
    [
        (3, [1_000_000, 2_000_000], 0),
        (2, [1_000_000, 2_000_000], 1),
        (4, [1_000_000, 2_000_000], 1),
        (1, [None, None], 1),
    ],
)
def test_the_average_of_cluster_analyse_is_recognised_by_the_number_of_steps(
    tmp_path: Path, count: int, computing: list[int | None], said: int
) -> None:
    steps = f"{HEADER}\n1,100,300,200,120,250,20,130,50\n2,300,500,200,320,450,20,130,50\n"
    analyse = ANALYSE + "".join(f"{number},0.5,3,0.25,0\n" for number in range(1, count + 1))
    (tmp_path / "ascend_cluster_analyse_pipeline-parallel_2_4_3.csv").write_text(analyse)
    batch = _read(tmp_path, step_trace_raw_3_detail_time_csv=steps)
    assert [row[0] for row in rows(batch, "steps", "computing")] == computing
    assert len(batch.warnings) == said
    assert rows(batch, "ranks", "stage") == [(1,)]
    if count == 3:
        assert rows(batch, "steps", "exposed, bubble, free") == [(500_000, 250_000, None)] * 2


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20)
)
@settings(max_examples=25, deadline=None)
def test_parts_of_a_step_add_up_to_it(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int, int]]
) -> None:
    lines, at = [HEADER], 1000
    for number, (wait, work, tail) in enumerate(parts, 1):
        total = wait + work + tail
        lines.append(f"{number},{at},{at + total},{total},{at + wait},{at + wait + work},{wait},{work},{tail}")
        at += total
    root = tmp_path_factory.mktemp("steps")
    batch = _read(root, step_trace_raw_0_detail_time_csv="\n".join(lines))
    found = rows(
        batch, "steps", 'duration - coalesce(data_wait, 0) - forward_backward - tail, "end" - start - duration'
    )
    assert found == [(0, 0)] * len(parts)


# -- hccl_raw ---------------------------------------------------------------------------------------------------------

RAW = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"


def _cell(value: object) -> str:
    return '"' + (value if isinstance(value, str) else json.dumps(value)).replace('"', '""') + '"'


def _raw(step: object, links: object, operators: object) -> str:
    return f"{step},1,1,{_cell(links)},{_cell(operators)}\n"


OLD = {"1-0": {"SDMA": [2.0, 40000.0, 2e7]}, "0-2": {"RDMA": [1.0, 500.0, 5e5, 0.25]}}
NEW = {"1-0": {"SDMA": [2.0, 40000.0, 20.0]}, "0-2": {"RDMA": [1.0, 500.0, 5e5, 0.25]}, "2-0": {}}


@pytest.mark.parametrize(("links", "cost"), [(OLD, [3.0, 7.0]), (NEW, [3000.0, 7000.0])])
def test_both_generations_of_units_give_the_same_numbers(tmp_path: Path, links: object, cost: list[float]) -> None:
    """3 ms of transit and 7 ms of wait, once written in ms and KB/s, once in µs and GB/s."""
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(1, links, {"stream_1_0_AllReduce-op5": ["1", *cost, links]}))
    assert rows(batch, "collectives", "name, transit, wait, bytes") == [
        ("AllReduce-op5", 3_000_000, 7_000_000, 40_500_000)
    ]
    assert rows(batch, "transfers", "src, dst, transport, bytes, duration, wait, scope, name") == [
        (1, 0, "SDMA", 40_000_000, 2_000_000, 0, "group", "AllReduce-op5"),
        (0, 2, "RDMA", 500_000, 1_000_000, 250_000, "group", "AllReduce-op5"),
    ]
    assert batch.warnings == []


def test_costs_without_links_are_assumed_to_be_milliseconds_and_reported(tmp_path: Path) -> None:
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(1, {}, {"Send-op1": ["1", 0, 2, {}]}))
    assert rows(batch, "collectives", "op, wait, bytes") == [("send", 2_000_000, None)]
    assert _messages(batch) == ["the unit of the costs is not recorded; assumed to be ms"]


def test_average_row_is_dropped_even_as_python(tmp_path: Path) -> None:
    operators = {"AllReduce-op5": ["1", 3.0, 7.0, OLD]}
    text = RAW + _raw(1, OLD, operators) + _raw("-", OLD, str({"AllReduce-op5": [3.0, 7.0, OLD]}))
    batch = _read(tmp_path, hccl_raw_0_csv=text)
    assert rows(batch, "collectives", "step") == [(1,)]
    assert batch.warnings == []


def test_python_cells_are_understood_in_other_rows_too(tmp_path: Path) -> None:
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(1, str(OLD), str({"AllReduce-op5": ["1", 3.0, 7.0, OLD]})))
    assert rows(batch, "collectives", "transit") == [(3_000_000,)]


def test_links_of_the_step_replace_missing_operators(tmp_path: Path) -> None:
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(2, OLD, {}))
    assert rows(batch, "transfers", "step, name, src, dst, bytes") == [
        (2, None, 1, 0, 40_000_000),
        (2, None, 0, 2, 500_000),
    ]


def test_a_damaged_cell_costs_one_step(tmp_path: Path) -> None:
    good = {"AllReduce-op5": ["1", 3.0, 7.0, OLD]}
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(1, OLD, good) + _raw(2, "{", '{"AllReduce'))
    assert rows(batch, "collectives", "step") == [(1,)]
    assert _messages(batch) == ["part of step 2 is not JSON and was left out"]


def test_exactly_500_operators_are_reported_as_cut_off(tmp_path: Path) -> None:
    operators = {f"AllReduce-op{number}": ["1", 3.0, 7.0, OLD] for number in range(500)}
    batch = _read(tmp_path, hccl_raw_0_csv=RAW + _raw(1, OLD, operators))
    assert _messages(batch) == ["transfers are recorded for 500 collectives (the parser's limit)"]


def test_receive_over_equal_numbers_is_not_local(tmp_path: Path) -> None:
    links = {"1-1": {"SDMA": [2.0, 40000.0, 2e7]}}
    operators = {"Receive-op1": ["1", 2.0, 0, links], "AllReduce-op2": ["1", 2.0, 0, links]}
    batch = _read(tmp_path, hccl_raw_1_csv=RAW + _raw(1, links, operators))
    assert rows(batch, "transfers", "name, transport") == [("Receive-op1", "SDMA"), ("AllReduce-op2", "LOCAL")]


def test_costs_summed_over_planes_are_reported(tmp_path: Path) -> None:
    columns = "stream_1_0_AllReduce-op5,stream_1_0_AllReduce-op5_start_point,stream_1_0_AllReduce-op5_end_point"
    batch = _read(
        tmp_path,
        step_trace_raw_0_detail_time_csv=f"{HEADER},{columns}\n1,100,900,800,120,850,20,730,50,400,200,600\n",
        hccl_raw_0_csv=RAW + _raw(1, NEW, {"stream_1_0_AllReduce-op5": ["1", 3000.0, 7000.0, NEW]}),
    )
    assert rows(batch, "collectives", "start, duration, idle") == [(2000, 4000, None)]
    assert "sums over parallel planes" in _messages(batch)[0]


@needs_fixtures
def test_real_output_of_mindspore_2_1_is_microseconds(tmp_path: Path) -> None:
    """What the r2.1 generator printed for AlexNet: its costs in µs, its links in ms, KB and GB/s."""
    golden = (FIXTURES / "golden_hccl" / "alexnet_mindspore_r2.1_generator_output.txt").read_text().splitlines()[:3]
    text = RAW
    for line in golden:
        step, _, cost, _, wait, links = line.split(" ", 5)
        operators = {"AllReduce-op534_0": [step, float(cost), float(wait), json.loads(links)]}
        text += _raw(step, json.loads(links), operators)
    batch = _read(tmp_path, hccl_raw_0_csv=text)
    assert rows(batch, "collectives", "name, step, transit, wait", "step = 1") == [
        ("AllReduce-op534", 1, 27_026_050, 138_220_550)
    ]
    [(size, duration)] = rows(batch, "transfers", "bytes, duration", "step = 1 AND src = 0 AND dst = 1")
    assert (size, duration) == (49_161_728, 3_205_720)
    assert rows(batch, "transfers", "transport, bytes", "step = 1 AND src = dst") == [("LOCAL", 28_092_288)]


MOVED = st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**9), st.integers(0, 10**7)), min_size=1, max_size=8)


@given(MOVED)
@settings(max_examples=25, deadline=None)
def test_whatever_was_moved_comes_back_from_either_generation(
    tmp_path_factory: pytest.TempPathFactory, moved: list[tuple[int, int, int]]
) -> None:
    """(ns, bytes, wait ns) per operator → both spellings → the same rows."""
    for cost_unit, rate_unit in ((1e6, 1e6), (1e3, 1.0)):
        operators = {}
        for number, (time, size, wait) in enumerate(moved):
            links = {"1-0": {"SDMA": [time / 1e6, size / 1e3, size / time * rate_unit]}}
            operators[f"stream_3_{number}_AllReduce-op{number}"] = ["1", time / cost_unit, wait / cost_unit, links]
        whole: dict[str, Any] = {"1-0": {"SDMA": [0.0, 0.0, 0.0]}}
        for *_, links in operators.values():
            added = zip(whole["1-0"]["SDMA"], links["1-0"]["SDMA"], strict=True)  # type: ignore[index]
            whole["1-0"]["SDMA"] = [one + other for one, other in added]
        batch = _read(tmp_path_factory.mktemp("raw"), hccl_raw_0_csv=RAW + _raw(1, whole, operators))
        assert rows(batch, "collectives", "transit, bytes, wait") == moved
        assert rows(batch, "transfers", "duration, bytes") == [(time, size) for time, size, _ in moved]


NAMES = (
    "step_trace_raw_0_detail_time_csv",
    "hccl_raw_0_csv",
    "flops_0_txt",
    "flops_summary_0_json",
    "memory_usage_0_pb",
    "memory_usage_summary_0_json",
    "memory_usage_details_0_json",
    "aicore_intermediate_0_type_csv",
    "aicore_intermediate_0_detail_csv",
    "aicpu_intermediate_0_csv",
    "framework_raw_0_csv",
    "output_op_compute_time_0_txt",
)
HEADERS = {
    "step_trace_raw_0_detail_time_csv": HEADER,
    "hccl_raw_0_csv": RAW.strip(),
    "aicore_intermediate_0_type_csv": "kernel_type,total_time,execution_frequency,percent",
    "aicpu_intermediate_0_csv": "serial_number,kernel_type,total_time,run_start,run_end",
}
CELLS = st.lists(st.text('0123456789-.,eE+"{}[]:a\n ', max_size=30) | st.just("1e400") | st.just("9" * 30), max_size=12)


@given(CELLS, st.binary(max_size=60))
@settings(max_examples=40, deadline=None)
def test_no_content_surprises_a_parser(tmp_path_factory: pytest.TempPathFactory, cells: list[str], tail: bytes) -> None:
    """Every failure is one the reader explains itself (a FormatError), never another library's exception."""
    root = tmp_path_factory.mktemp("noise")
    body = ",".join(cells).encode()
    plain = {name: HEADERS.get(name, "").encode() + b"\n" + body + tail for name in NAMES}
    (root / "ascend_cluster_analyse_model-parallel_1_2_0.csv").write_bytes(ANALYSE.encode() + body)
    batch = _read(root, **plain)
    assert [message for message in _messages(batch) if "cannot be" in message] == []


# -- memory -----------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _proto(*pairs: tuple[int, int | bytes]) -> bytes:
    return b"".join(
        _varint(number << 3) + _varint(value)
        if isinstance(value, int)
        else _varint(number << 3 | 2) + _varint(len(value)) + value
        for number, value in pairs
    )


def _plan() -> bytes:
    nodes = [(3, _proto((1, f"Default/op{i}".encode()), (2, i), (3, 1))) for i in range(4)]
    tensors = [
        (4, _proto((1, 0), (2, 10), (6, b"LifeLongGraphAll"))),
        (4, _proto((1, 1), (2, 100), (5, 1), (6, b"LifeLongGraphStart"))),
        (4, _proto((1, 2), (2, 1000), (4, 2), (6, b"LifeLongGraphEnd"))),
        (4, _proto((1, 3), (2, 7), (4, 1), (5, 2), (6, b"LifeLongNone"))),
    ]
    return _proto((1, _proto((1, 1), (2, 5), *nodes, *tensors, (5, b"Default/op0"))), (2, 32 * GIB))


def test_memory_plan_adds_up_the_living_tensors(tmp_path: Path) -> None:
    batch = _read(tmp_path, memory_usage_0_pb=_plan())
    assert rows(batch, "memory", "kind, name, position, allocated") == [
        ("node", "Default/op0", 0, 115),
        ("node", "Default/op1", 1, 122),
        ("node", "Default/op2", 2, 1022),
        ("node", "Default/op3", 3, 1015),
    ]
    assert rows(batch, "ranks_memory", "peak, capacity, static, basis") == [(1022, 32 * GIB, 5, "theoretical")]


DETAILS = {
    "1": {
        "graph_id": 1,
        "static_mem": 0.5,
        "lines": [1.0, 1.5],
        "breakdowns": [[{"size": 1}]],
        "nodes": [{"name": "a", "fullname": "Default/a", "node_id": 0}, {"name": "b", "node_id": 7}],
    }
}
SUMMARY = '{"capacity": 32.0, "allocations": 1, "deallocations": 1, "peak_mem": 1.5, "static_mem": 0.5}'


def test_memory_json_files_are_gib(tmp_path: Path) -> None:
    batch = _read(tmp_path, memory_usage_details_0_json=json.dumps(DETAILS), memory_usage_summary_0_json=SUMMARY)
    assert rows(batch, "memory", "name, position, allocated") == [("Default/a", 0, GIB), ("b", 7, GIB * 3 // 2)]
    assert rows(batch, "ranks_memory", "peak, capacity, static") == [(GIB * 3 // 2, 32 * GIB, GIB // 2)]


def test_memory_is_read_from_what_is_left_when_a_file_is_damaged(tmp_path: Path) -> None:
    batch = _read(tmp_path, memory_usage_0_pb=_plan(), memory_usage_summary_0_json="{", memory_usage_details_0_json="")
    assert rows(batch, "ranks_memory", "peak, capacity") == [(1022, 32 * GIB)]
    assert sorted(str(warning.file) for warning in batch.warnings) == [
        "memory_usage_details_0.json",
        "memory_usage_summary_0.json",
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0a" + _varint(10 * 10**9),
        _plan()[:-9][:40],
        b"\x0a\xff",
        b"\xff" * 30,
        b"\x0b\x00",
        _proto((1, 5)),
        _proto((2, b"text")),
        _proto((1, b"\x1a" + _varint(10 * 10**9))),
    ],
)
def test_damaged_plan_is_refused_without_allocating_what_it_declares(tmp_path: Path, content: bytes) -> None:
    batch = _read(tmp_path, memory_usage_0_pb=content)
    assert rows(batch, "memory") == rows(batch, "ranks_memory") == []
    assert [warning.file for warning in batch.warnings] == ["memory_usage_0.pb"]


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_protobuf_walker_ends_on_any_bytes(data: bytes) -> None:
    try:
        found = list(fields(memoryview(data)))
    except FormatError:
        return
    assert sum(len(value) for _, value in found if not isinstance(value, int)) <= len(data)


LIVES = st.sampled_from(["LifeLongGraphAll", "LifeLongGraphStart", "LifeLongGraphEnd", "LifeLongNone"])
TENSORS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 12), st.integers(0, 12), LIVES), max_size=20)


@given(st.sets(st.integers(0, 10)), TENSORS)
def test_memory_at_a_node_is_the_sum_of_what_lives_there(
    nodes: set[int], tensors: list[tuple[int, int, int, str]]
) -> None:
    def alive(at: int, start: int, end: int, life: str) -> bool:
        from_start = life in ("LifeLongGraphAll", "LifeLongGraphStart")
        to_end = life in ("LifeLongGraphAll", "LifeLongGraphEnd")
        return (from_start or start <= at) and (to_end or at <= end)

    positions = sorted(nodes)
    expected = [sum(size for size, *life in tensors if alive(at, *life)) for at in positions]  # type: ignore[arg-type]
    assert memory_at(positions, tensors) == expected


# -- FLOPs ------------------------------------------------------------------------------------------------------------

FLOPS = "name, unit, flops, flops_per_s, utilisation"


@pytest.mark.parametrize(
    "header",
    [
        "op_full_name, MFLOPs(10^6), GFLOPS(10^9), FLOPS utilization(%)",
        "full_kernel_name, FLOPs, FLOPS, FLOPS utilization",
    ],
)
def test_flops_of_operators_in_one_unit(tmp_path: Path, header: str) -> None:
    batch = _read(tmp_path, flops_0_txt=f"{header}\nDefault/Mul-op1, 2, 3, 50\nDefault/Add-op2, -, -, -\nDefault/Cu")
    assert rows(batch, "flops", FLOPS) == [
        ("Default/Mul-op1", None, 2e6, 3e9, 0.5),
        ("Default/Add-op2", None, None, None, None),
    ]
    assert _messages(batch) == ["1 cut-off rows are left out"]


def test_flops_of_operators_split_by_unit(tmp_path: Path) -> None:
    header = (
        "full_kernel_name, MFLOPs(10^6 cube), GFLOPS(10^9 cube), FLOPS utilization(cube), "
        "MFLOPs(10^6 vector), GFLOPS(10^9 vector), FLOPS utilization(vec)"
    )
    batch = _read(tmp_path, flops_0_txt=f"{header}\nDefault/Mul-op1, 2, 3, 50, 4, 5, 25\n")
    assert rows(batch, "flops", FLOPS) == [
        ("Default/Mul-op1", "cube", 2e6, 3e9, 0.5),
        ("Default/Mul-op1", "vector", 4e6, 5e9, 0.25),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"FLOPs": 8167.743, "FLOPS": 9868.936, "FLOPS_Utilization": 3.765}',
            [(None, 8167.743e6, 9868.936e9, 0.03765)],
        ),
        (
            '{"cube_FLOPs": 1, "cube_FLOPS": 2, "vec_FLOPs": 3, "vec_FLOPS": 4, "cube_FLOPS_Utilization": 50}',
            [("cube", 1e6, 2e9, 0.5), ("vector", 3e6, 4e9, None)],
        ),
    ],
)
def test_flops_of_the_rank_with_old_and_new_keys(tmp_path: Path, text: str, expected: list[tuple[Any, ...]]) -> None:
    found = rows(_read(tmp_path, flops_summary_0_json=text), "flops", "unit, flops, flops_per_s, utilisation")
    assert [row[0] for row in found] == [row[0] for row in expected]
    assert [row[1:] for row in found] == [pytest.approx(row[1:]) for row in expected]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"FLOPs": "many"}', b"\xff"])
def test_damaged_flops_become_a_warning(tmp_path: Path, content: bytes) -> None:
    batch = _read(tmp_path, flops_summary_0_json=content, flops_0_txt=content)
    assert rows(batch, "flops") == []
    assert len(batch.warnings) == 2


# -- operators and kernels --------------------------------------------------------------------------------------------


@needs_fixtures
def test_operators_add_up_to_their_types(tmp_path: Path) -> None:
    batch, _ = read_all(READER, RESOURCE / "run_1", tmp_path)
    sums = rows(batch, "operators", "level, sum(time)", "true GROUP BY level ORDER BY level")
    assert sums == [("name", 3_465_350), ("type", 3_465_350)]
    # MindInsight 2.3.1 shows the same in µs: MatMul 2807.82, 25 times.
    assert rows(batch, "operators", "count, time", "name = 'MatMul'") == [(25, 2_807_820)]


@needs_fixtures
def test_ai_cpu_operators_agree_with_mindinsight(tmp_path: Path) -> None:
    batch, _ = read_all(READER, RESOURCE / "run_2", tmp_path)
    golden = json.loads((FIXTURES / "golden_api_mindinsight_2.3.1" / "ops_aicpu_type.json").read_text())["object"]
    found = rows(batch, "operators", "name, time / 1e3, count", "core = 'AI_CPU'")
    assert sorted(found) == sorted((name, time, count) for name, time, count, _ in golden)


@needs_fixtures
def test_kernels_and_timeline_lie_on_the_clock_of_the_steps(tmp_path: Path) -> None:
    batch, _ = read_all(READER, RESOURCE / "run_2", tmp_path)
    kernel = rows(
        batch,
        "kernels",
        "start, duration, stream, type, input_shapes, output_shapes",
        "name = 'Default/TransData-op118' ORDER BY start LIMIT 1",
    )
    assert kernel == [(154_907_895_965_170, 46_640, 519, "TransData", "2,3,227,227", "2,1,227,227,16")]
    assert rows(batch, "events", "start, duration", "name = 'TransData-op118' ORDER BY start LIMIT 1") == [
        (154_907_895_965_170, 46_640)
    ]
    assert rows(batch, "kernels", "count(*)", "step = 1 AND core = 'AI_CORE'") == [(103,)]


def test_gpu_operators_are_microseconds(tmp_path: Path) -> None:
    batch = _read(
        tmp_path,
        gpu_op_type_info_0_csv="op_type,type_occurrences,total_time(us),total_proportion,avg_time(us)\nMatMul,4,80.5,0.9,20\n",
        gpu_op_detail_info_0_csv="op_side,op_type,op_name,op_full_name,op_occurrences,op_total_time,op_avg_time,proportion\n"
        "cpu_op,MatMul,MatMul-op1,Default/MatMul-op1,2,40.25,20.1,0.4\n",
    )
    assert rows(batch, "operators", "level, name, type, core, count, time") == [
        ("type", "MatMul", "MatMul", "GPU", 4, 80_500),
        ("name", "Default/MatMul-op1", "MatMul", "GPU", 2, 40_250),
    ]


def test_operator_times_fall_back_to_the_text_file(tmp_path: Path) -> None:
    text = "====op compute time====\nop_name  compute_time(ms) stream_id\n----  ---  ---\nDefault/Mul-op1 0.0025  519\n"
    batch = _read(tmp_path, output_op_compute_time_0_txt=text)
    assert rows(batch, "operators", "level, name, type, count, time") == [
        ("name", "Default/Mul-op1", "Mul", None, 2500)
    ]


def test_cut_off_kernels_are_counted(tmp_path: Path) -> None:
    text = (
        "op_name, stream_id, start_time(ms), duration(ms)\nDefault/Mul-op1,5,1.5,0.25\nDefault/Mul-op2,5,1.\nDefault/Mu"
    )
    batch = _read(tmp_path, output_timeline_data_0_txt=text)
    assert rows(batch, "kernels", "name, stream, start, duration, step") == [
        ("Default/Mul-op1", 5, 1_500_000, 250_000, None)
    ]
    assert _messages(batch) == ["2 rows without a start or duration are left out"]


def _two_steps(kernels: list[dict[str, Any]]) -> dict[str, str]:
    """Two steps of 20 µs; an all-reduce from 12 to 18 µs in both; the timeline begins with the first step."""
    columns = "stream_1_0_AllReduce-op5,stream_1_0_AllReduce-op5_start_point,stream_1_0_AllReduce-op5_end_point"
    rows_ = (
        "1,1000,3000,2000,1200,2500,200,1300,500,600,2200,2800\n2,3000,5000,2000,3200,4500,200,1300,500,600,4200,4800\n"
    )
    events = [*kernels, *(_event("AllReduce-op5", at, dur=6.0, pid=10000) for at in (12.0, 32.0))]
    return {
        "step_trace_raw_0_detail_time_csv": f"{HEADER},{columns}\n{rows_}",
        "ascend_timeline_display_0_json": json.dumps(events),
    }


_SPLIT = "step, computing, communication, overlapped, exposed, free"


def test_kernels_of_the_timeline_split_the_steps_where_no_other_file_does(tmp_path: Path) -> None:
    kernels = [_event("MatMul-op1", at + begin, dur=8.0) for at in (0.0, 20.0) for begin in (1.0, 6.0)]
    others = [
        _event("GetNext-op9", 0.0, dur=1.0, pid=9000),
        _event(
            "TopK-op2", 19.0, dur=1.0, pid=9000, args={"type": "TopK", "input_0": {"shape": "4,8", "data_type": "x"}}
        ),
        _event("Merged Computation Op", 0.0, dur=20.0, pid=12000),
        _event("1", 0.0, dur=20.0, tid="100000"),
    ]
    batch = _read(tmp_path, **_two_steps(kernels + others))
    # From 1 to 14 µs computing, from 12 to 18 communication: 2 µs of it are hidden.
    assert rows(batch, "steps", _SPLIT) == [
        (1, 13_000, 6_000, 2_000, 4_000, 3_000),
        (2, 13_000, 6_000, 2_000, 4_000, 3_000),
    ]
    found = rows(batch, "kernels", "step, type, core, start, duration, input_shapes")
    assert sorted(found)[:3] == [
        (1, "MatMul", "AI_CORE", 11_000, 8_000, None),
        (1, "MatMul", "AI_CORE", 16_000, 8_000, None),
        (1, "TopK", "AI_CPU", 29_000, 1_000, "4,8"),
    ]
    assert len(found) == 5


def test_steps_behind_the_end_of_a_cut_off_timeline_are_not_split(tmp_path: Path) -> None:
    kernels = [_event(f"MatMul-op{n}", n * 0.1, dur=0.1) for n in range(100)] + [_event("MatMul-op0", 21.0, dur=0.1)]
    batch = _read(tmp_path, **_two_steps(kernels))
    assert rows(batch, "steps", "computing IS NULL") == [(False,), (True,)]


# -- timeline ---------------------------------------------------------------------------------------------------------


def _event(name: str, ts: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": "X", "tid": "5", "ts": ts, "dur": 2.5, "pid": 0} | more


def test_timeline_is_tied_to_the_steps_by_its_communication(tmp_path: Path) -> None:
    columns = "stream_1_0_AllReduce-op5,stream_1_0_AllReduce-op5_start_point,stream_1_0_AllReduce-op5_end_point"
    events = [
        _event("Mul-op1", 0.0),
        _event("AllReduce-op5", 1.0, pid=10000),
        {"name": "process_labels", "ph": "M", "pid": "10000", "args": {"labels": "Communication Op"}},
    ]
    batch = _read(
        tmp_path,
        step_trace_raw_0_detail_time_csv=f"{HEADER},{columns}\n1,1000,3000,2000,1200,2500,200,1300,500,400,2000,2400\n",
        ascend_timeline_display_0_json=json.dumps(events),
    )
    assert rows(batch, "events", "track, name, start, duration") == [
        ("process 0/5", "Mul-op1", 19_000, 2_500),
        ("Communication Op/5", "AllReduce-op5", 20_000, 2_500),
    ]


def _three_all_reduces(shown: Sequence[float], starts: Sequence[int] = (2000, 6000, 11000)) -> dict[str, str]:
    """A step trace with an all-reduce in each step, and a timeline that shows it at these times (µs)."""
    columns = "stream_1_0_AllReduce-op5,stream_1_0_AllReduce-op5_start_point,stream_1_0_AllReduce-op5_end_point"
    lines = [
        f"{step},{start - 1000},{start + 900},1900,{start - 900},{start + 500},100,1400,400,400,{start},{start + 400}"
        for step, start in enumerate(starts, 1)
    ]
    return {
        "step_trace_raw_0_detail_time_csv": "\n".join([f"{HEADER},{columns}", *lines, ""]),
        "ascend_timeline_display_0_json": json.dumps([_event("AllReduce-op5", at, pid=10000) for at in shown]),
    }


def test_a_timeline_of_another_rank_does_not_fit_the_step_trace(tmp_path: Path) -> None:
    batch = _read(tmp_path, **_three_all_reduces((1.0, 61.0, 121.0)))
    assert {warning.kind for warning in batch.warnings if "another rank's" in warning.message} == {"disagreement"}


def test_a_timeline_fits_the_step_trace_but_for_rounding(tmp_path: Path) -> None:
    batch = _read(tmp_path, **_three_all_reduces((1.0, 41.01, 91.0)))
    assert [warning for warning in batch.warnings if "another rank's" in warning.message] == []


def test_a_step_trace_without_the_first_step_is_paired_from_the_last(tmp_path: Path) -> None:
    """Its collectives are the timeline's last."""
    batch = _read(tmp_path, **_three_all_reduces((1.0, 41.0, 91.0), starts=(6000, 11000)))
    assert [warning for warning in batch.warnings if "another rank's" in warning.message] == []
    assert rows(batch, "events", "start") == [(20_000,), (60_000,), (110_000,)]


def test_timeline_is_tied_to_the_steps_by_its_lane_of_steps(tmp_path: Path) -> None:
    batch = _read(
        tmp_path,
        step_trace_raw_0_detail_time_csv=f"{HEADER}\n7,1000,3000,2000,1200,2500,200,1300,500\n",
        ascend_timeline_display_0_json=json.dumps([_event("7", 4.0, tid="100000"), _event("Mul-op1", 5.0)]),
    )
    assert rows(batch, "events", "start", "name = 'Mul-op1'") == [(11_000,)]


def _timeline_with_kernels() -> str:
    labels = {"0": "AICORE OP", "9000": "AICPU OP", "10000": "Communication Op", "12000": "Op Overlap Analyse"}
    return json.dumps(
        [
            _event("7", 4.0, tid="100000"),
            _event("MatMulV3-op12", 5.0, tid="519"),
            _event("GetNext-op1", 6.0, pid=9000),
            _event("TopK-op2", 6.0, pid=9000),
            _event("AllReduce-op5", 7.0, pid=10000),
            _event("Free Time", 8.0, pid=12000),
            *(
                {"name": "process_labels", "ph": "M", "pid": pid, "args": {"labels": label}}
                for pid, label in labels.items()
            ),
        ]
    )


def test_operators_of_the_timeline_are_the_kernels_where_no_other_file_has_them(tmp_path: Path) -> None:
    batch = _read(
        tmp_path,
        step_trace_raw_0_detail_time_csv=f"{HEADER}\n7,1000,3000,2000,1200,2500,200,1300,500\n",
        ascend_timeline_display_0_json=_timeline_with_kernels(),
    )
    assert sorted(rows(batch, "kernels", "step, name, type, core, stream, start, duration")) == [
        (7, "MatMulV3-op12", "MatMulV3", "AI_CORE", 519, 11_000, 2_500),
        (7, "TopK-op2", "TopK", "AI_CPU", 5, 12_000, 2_500),
    ]


def test_operators_of_the_timeline_are_not_kernels_twice(tmp_path: Path) -> None:
    text = "op_name, stream_id, start_time(ms), duration(ms)\nDefault/Mul-op1,5,1.5,0.25\n"
    batch = _read(
        tmp_path,
        step_trace_raw_0_detail_time_csv=f"{HEADER}\n7,1000,3000,2000,1200,2500,200,1300,500\n",
        ascend_timeline_display_0_json=_timeline_with_kernels(),
        output_timeline_data_0_txt=text,
    )
    assert rows(batch, "kernels", "name") == [("Default/Mul-op1",)]


def test_timeline_alone_counts_from_its_start_and_reports_it(tmp_path: Path) -> None:
    batch = _read(tmp_path, ascend_timeline_display_0_json=json.dumps([_event("Mul-op1", 5.0)]))
    assert rows(batch, "events", "start") == [(5_000,)]
    assert "times count from its start" in _messages(batch)[0]


def test_timeline_at_the_size_limit_is_reported_as_cut_off(tmp_path: Path) -> None:
    text = json.dumps([_event("Mul-op1", 5.0)])
    batch = _read(tmp_path, ascend_timeline_display_0_json=text[:-1] + " " * (20 * 2**20 - len(text)) + "]")
    assert "size limit" in _messages(batch)[0]


@pytest.mark.parametrize("content", [b"", b"[{", b"{}"])
def test_damaged_timeline_costs_only_itself(tmp_path: Path, content: bytes) -> None:
    step = f"{HEADER}\n1,100,300,200,120,250,20,130,50\n"
    batch = _read(tmp_path, step_trace_raw_0_detail_time_csv=step, ascend_timeline_display_0_json=content)
    assert rows(batch, "events") == []
    assert len(rows(batch, "steps")) == 1
    assert batch.warnings[-1].file == "ascend_timeline_display_0.json"
