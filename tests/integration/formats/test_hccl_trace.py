"""HCCL task traces: the golden triple, hand-made RDMA, and whatever else vendors and accidents write."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.formats.hccl.execution import CollectiveExecution, LinkTransfer, PacketCount
from paceline.formats.hccl.task_trace import NO_PEER, as_number, read_trace
from paceline.formats.mindinsight.collectives import name_executions
from paceline.formats.mindinsight.reader import READER
from paceline.formats.mindinsight.steps import OperatorWindow, StepTrace, TraceStep
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

GOLDEN = FIXTURES / "mindspore-tests" / "tests" / "ut" / "data" / "profiler_data" / "profiler"


def task(
    kind: str, ts: float, dur: float, *, src: int = 1, dst: int = 0, via: str = "SDMA", **more: Any
) -> dict[str, Any]:
    tid, size = more.pop("tid", 2), more.pop("size", None)
    args = {"task type": kind, "src rank": src, "dst rank": dst, "transport type": via, "size": size, **more}
    return {"tid": tid, "pid": "6", "ts": ts, "dur": dur, "ph": "X", "name": kind, "args": args}


def write_trace(directory: Path, *tasks: dict[str, Any], operator: str = "allReduce_1_1", k: int = 1) -> Path:
    path = directory / operator / f"iter{k}.trace"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"device id": "6", "iteration": k, "traceEvents": list(tasks)}))
    return path


# -- the golden triple ------------------------------------------------------------------------------------------------


@needs_fixtures
def test_golden_traces_give_the_vendors_costs(tmp_path: Path) -> None:
    batch, _ = read_all(READER, GOLDEN, tmp_path)
    costs = rows(batch, "collectives", "name, step, sequence, transit, wait, sync, bytes", "rank = 6")
    assert costs == [
        ("AllReduce-op3143", 1, 1, 4_516_370, 40, 10, 94_356_992),
        ("AllReduce-op3143", 2, 2, 4_519_260, 70, 20, 94_356_992),
    ]


@needs_fixtures
def test_golden_traces_give_the_vendors_links(tmp_path: Path) -> None:
    batch, _ = read_all(READER, GOLDEN, tmp_path)
    links = rows(batch, "transfers", "src, dst, transport, bytes, duration, bytes / duration", "rank = 6 AND step = 1")
    assert links[0][:5] == (1, 0, "SDMA", 94_356_992, 4_365_660)
    assert links[0][5] == pytest.approx(21.613, abs=5e-4)
    assert links[1][:5] == (0, 0, "LOCAL", 47_178_496, 150_710)


@needs_fixtures
def test_golden_traces_and_the_csv_made_from_them_agree(tmp_path: Path) -> None:
    """The third of the triple: MindSpore's summary of the traces."""
    batch, _ = read_all(READER, GOLDEN, tmp_path)
    with (GOLDEN / "hccl_raw_6.csv").open() as file:
        expected = [row for row in csv.DictReader(file) if row["step_num"] != "-"]
    ours = rows(batch, "collectives", "transit, wait", "rank = 6")
    assert ours == [
        (round(float(row["communication_cost"]) * 1e6), round(float(row["wait_cost"]) * 1e6)) for row in expected
    ]


@needs_fixtures
def test_golden_traces_lie_where_the_step_trace_saw_them(tmp_path: Path) -> None:
    batch, _ = read_all(READER, GOLDEN, tmp_path)
    # stream_24_0_AllReduce-op3143: 454080 ticks from tick 61688109006157
    assert rows(batch, "collectives", "start, duration", "rank = 6 AND step = 1") == [(616_881_090_061_570, 4_540_800)]


# -- definitions ------------------------------------------------------------------------------------------------------


def test_costs_are_those_of_the_main_stream_and_links_those_of_all(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path,
        task("Notify Wait", 0, 5, via="LOCAL"), task("Memcpy", 5, 10, size=1000),
        task("Notify Wait", 15, 2, via="LOCAL"),
        task("Reduce Inline", 3, 7, size=500, tid=1), task("Notify Wait", 0, 99, via="LOCAL", tid=1),
    )  # fmt: skip
    one = read_trace(path)
    assert (one.transit, one.wait, one.sync, one.idle) == (10_000, 7_000, 5_000, 99_000 - 17_000)
    assert one.links == (LinkTransfer(1, 0, "SDMA", 1500, 17_000),)
    assert one.packets == (PacketCount("SDMA", 500, 1, 7_000), PacketCount("SDMA", 1000, 1, 10_000))


@pytest.mark.parametrize("answer", ["LOCAL", "RDMA"])
def test_an_rdma_transfer_is_payload_notify_and_answer(tmp_path: Path, answer: str) -> None:
    """The answer's wait belongs to the transfer (rdma wait), the one before the first send is sync."""
    path = write_trace(
        tmp_path,
        task("Notify Wait", 0, 3, src=1, dst=0, via="LOCAL"),
        task("RDMASend", 3, 1, src=0, dst=1, via="RDMA", size=4096),
        task("RDMASend", 4, 1, src=0, dst=1, via="RDMA", size=4),
        task("Notify Wait", 5, 10, src=1, dst=0, via=answer),
        task("Notify Wait", 15, 4, src=1, dst=0, via="LOCAL"),
    )
    one = read_trace(path)
    assert one.links == (LinkTransfer(0, 1, "RDMA", 4100, 12_000, 10_000),)
    assert (one.transit, one.wait, one.sync) == (12_000, 7_000, 3_000)
    assert one.packets == (PacketCount("RDMA", 4096, 1, 12_000),)


def test_sends_of_two_links_may_interleave(tmp_path: Path) -> None:
    first, second = {"src": 0, "dst": 1}, {"src": 0, "dst": 2}
    path = write_trace(
        tmp_path,
        task("RDMASend", 0, 1, via="RDMA", size=8, **first), task("RDMASend", 1, 1, via="RDMA", size=16, **second),
        task("RDMASend", 2, 1, via="RDMA", size=0, **first), task("RDMASend", 3, 1, via="RDMA", size=0, **second),
        task("Notify Wait", 4, 2, src=1, dst=0, via="LOCAL"), task("Notify Wait", 6, 3, src=2, dst=0, via="LOCAL"),
    )  # fmt: skip
    assert set(read_trace(path).links) == {
        LinkTransfer(0, 1, "RDMA", 8, 4_000, 2_000),
        LinkTransfer(0, 2, "RDMA", 16, 5_000, 3_000),
    }


def test_an_empty_wait_recorded_inside_the_payload_is_not_the_answer(tmp_path: Path) -> None:
    trace = read_trace(
        write_trace(
            tmp_path,
            task("RDMASend", 10.0, 0.9, src=0, dst=1, via="RDMA", size=4_000_000),
            task("Notify Wait", 10.3, 0.0, src=1, dst=0, via="LOCAL"),
            task("RDMASend", 10.9, 0.6, src=0, dst=1, via="RDMA", size=4),
            task("Notify Wait", 11.5, 400.0, src=1, dst=0, via="RDMA"),
            # The answer to the other side is one send; what follows is waiting for its next message.
            task("RDMASend", 411.5, 0.6, src=0, dst=1, via="RDMA", size=4),
            task("Notify Wait", 412.1, 50.0, src=1, dst=0, via="RDMA"),
        )
    )
    assert trace.links == (LinkTransfer(0, 1, "RDMA", 4_000_004, 401_500, 400_000),)
    assert trace.packets == (PacketCount("RDMA", 4_000_000, 1, 401_500),)
    assert (trace.transit, trace.wait, trace.sync) == (401_500, 50_000, 0)


def test_lone_notifications_move_nothing(tmp_path: Path) -> None:
    notify = [
        task("RDMASend", 10.0, 0.6, src=0, dst=1, via="RDMA", size=4),
        task("Notify Wait", 10.6, 5.0, src=1, dst=0, via="RDMA"),
        task("RDMASend", 15.6, 0.6, src=0, dst=1, via="RDMA", size=4),
        task("Notify Wait", 16.2, 5.0, src=1, dst=0, via="RDMA"),
    ]
    assert read_trace(write_trace(tmp_path, *notify)).links == ()


def test_copies_without_a_peer_are_local(tmp_path: Path) -> None:
    one = read_trace(write_trace(tmp_path, task("Memcpy", 0, 4, src=NO_PEER, dst=3, size=64)))
    assert one.links == (LinkTransfer(3, 3, "LOCAL", 64, 4_000),)
    assert (one.bytes, one.packets) == (None, ())  # what it sent to others is not known


@pytest.mark.parametrize(("size", "expected"), [(512, 512), ("0x200", 512), ("512", 512), (512.0, 512), (None, None)])
def test_sizes_come_in_every_spelling(tmp_path: Path, size: object, expected: int | None) -> None:
    one = read_trace(write_trace(tmp_path, task("Memcpy", 0, 4, size=size, **{"notify id": "0x0000000100000090"})))
    assert one.links[0].bytes == expected
    assert one.bytes == expected


def test_newer_spellings_and_link_types_are_understood(tmp_path: Path) -> None:
    event = task("Reduce_Inline", 10, 2, **{"link type": "HCCS", "size(Byte)": 99})
    event["pid"] = 1003611
    assert read_trace(write_trace(tmp_path, event)).links == (LinkTransfer(1, 0, "HCCS", 99, 2_000),)


# -- names by time ----------------------------------------------------------------------------------------------------


def _execution(directory: str, start: int, k: int = 1) -> CollectiveExecution:
    return CollectiveExecution(directory, "all_reduce", k, start=start, duration=80)


def test_directories_are_named_by_time_not_by_order() -> None:
    """Column order is a, b; time order and directory order are b, a."""
    windows = (OperatorWindow("AllReduce-op1", 1, 500, 600), OperatorWindow("AllReduce-op2", 1, 100, 200))
    steps = (TraceStep(1, 0, 1000, 1000, 0, 0, 0),)
    named = name_executions(
        [_execution("allReduce_1_1", 110), _execution("allReduce_2_1", 510)], StepTrace(steps, windows)
    )
    assert [(one.name, one.step, one.start, one.duration) for one in named] == [
        ("AllReduce-op2", 1, 100, 100),
        ("AllReduce-op1", 1, 500, 100),
    ]


def test_overlapping_windows_are_distinguished_by_all_executions() -> None:
    us = 1000
    windows = (
        OperatorWindow("AllReduce-op1", 1, 100 * us, 400 * us), OperatorWindow("AllReduce-op2", 1, 90 * us, 400 * us),
        OperatorWindow("AllReduce-op1", 2, 1100 * us, 1200 * us), OperatorWindow("AllReduce-op2", 2, 1300 * us, 1400 * us),
    )  # fmt: skip
    executions = [
        _execution("a_1_1", 110 * us),
        _execution("a_1_1", 1310 * us, 2),
        _execution("a_2_1", 110 * us),
        _execution("a_2_1", 1110 * us, 2),
    ]
    names = [one.name for one in name_executions(executions, StepTrace((), windows))]
    assert names == ["AllReduce-op2", "AllReduce-op2", "AllReduce-op1", "AllReduce-op1"]


@pytest.mark.parametrize(("early", "late"), [(0, 0), (2000, 0), (0, 2000), (2000, 2000)])
def test_a_sum_beside_computing_is_not_named_after_what_runs_inside_its_window(early: int, late: int) -> None:
    """A sum of gradients whose trace begins or ends 2 µs outside its window, and the operator of 1 ms inside the window, whose
    own trace is 1 µs too long: the window is the sum's."""
    windows = (OperatorWindow("sum", 1, 100_000, 900_000), OperatorWindow("tensor-parallel", 1, 500_000, 501_000))
    executions = [
        CollectiveExecution("allReduce_2_1", "all_reduce", 1, start=100_000 - early, duration=800_000 + early + late),
        CollectiveExecution("allReduce_9_1", "all_reduce", 1, start=500_000, duration=2_500),
    ]
    names = [one.name for one in name_executions(executions, StepTrace((), windows))]
    assert names == ["sum", "tensor-parallel"]


def test_traces_outside_every_step_keep_their_own_name_and_have_no_step() -> None:
    trace = StepTrace((TraceStep(1, 0, 1000, 1000, 0, 0, 0),), (OperatorWindow("AllReduce-op1", 1, 100, 200),))
    [one] = name_executions([_execution("allReduce_9_1", 5000)], trace)
    assert (one.name, one.step, one.start) == ("allReduce_9_1", None, 5000)


# -- hostile input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"traceEvents": []}',
        b'{"traceEvents": [{"tid": [1]}]}',
        b"[" * 100_000,
        b'{"traceEvents": [], "x": ' + b"[" * 100_000,
    ],
)
def test_damaged_trace_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "allReduce_1_1" / "iter1.trace"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        read_trace(path)
    assert caught.value.file == path


def test_one_damaged_trace_costs_only_itself(tmp_path: Path) -> None:
    root = tmp_path / "hccl_info_3"
    write_trace(root, task("Memcpy", 0, 4, size=1))
    write_trace(root, task("Memcpy", 9, 4, size=1), k=2).write_text("{")
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert [part.rank for part in parts] == [3]
    assert rows(batch, "collectives", "sequence, transit") == [(1, 4_000)]
    assert "1 of 2 HCCL traces are left out" in str(batch.warnings[0])


def test_exactly_500_traces_are_reported_as_cut_off(tmp_path: Path) -> None:
    for k in range(500):
        write_trace(
            tmp_path / "hccl_info_0", task("Memcpy", k, 1, size=1), operator=f"allReduce_{k % 5}_1", k=k // 5 + 1
        )
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert [warning.message for warning in batch.warnings] == [
        "transfers are recorded for 500 collectives (the parser's limit)"
    ]


SCALARS = st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("0xff")


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "tid": SCALARS,
                "ts": SCALARS,
                "dur": SCALARS,
                "name": st.text(max_size=5),
                "args": st.fixed_dictionaries(
                    {},
                    optional={
                        "task type": st.sampled_from(
                            ["Memcpy", "Notify Wait", "RDMASend", "Reduce Inline", "Notify Record"]
                        ),
                        "src rank": SCALARS,
                        "dst rank": SCALARS,
                        "size": SCALARS,
                        "transport type": st.sampled_from(["SDMA", "RDMA", "LOCAL"]),
                    },
                ),
            },
        ),
        max_size=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_events_give_sound_costs_or_one_error(tmp_path_factory: pytest.TempPathFactory, events: list[Any]) -> None:
    path = tmp_path_factory.mktemp("trace") / "iter1.trace"
    path.write_text(json.dumps({"traceEvents": events}).replace("Infinity", "1e99"))
    try:
        one = read_trace(path)
    except FormatError:
        return
    assert one.transit is not None and one.wait is not None and one.sync is not None
    assert one.transit >= 0 and one.duration is not None and one.duration >= 0
    assert all(abs(link.duration) < 2**63 and abs(link.bytes or 0) < 2**63 for link in one.links)


@given(st.integers(0, 2**52))
def test_numbers_read_the_same_in_decimal_and_hex(value: int) -> None:
    assert as_number(value) == as_number(str(value)) == as_number(hex(value)) == value
