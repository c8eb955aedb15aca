"""quick_steps gives the same steps as the full reader, or raises UnsupportedTrace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.formats.chrome_trace.trace_events import event_pieces
from paceline.formats.kineto.metadata import read_trace_head
from paceline.formats.kineto.quick_steps import UnsupportedTrace, quick_steps
from paceline.formats.kineto.reader import READER
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

HTA = FIXTURES / "kineto" / "hta-2-ranks"
NANOSECONDS = FIXTURES / "kineto" / "ns_resolution_trace"
COLUMNS = (
    "step",
    "start",
    "end",
    "duration",
    "data_wait",
    "computing",
    "communication",
    "overlapped",
    "exposed",
    "free",
)
CORRELATIONS = st.sampled_from([1, 2, 3, 0, None])
KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10.0, "dur": 5.0}
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0.0, "dur": 100.0}


LEFT_TO_THE_FULL_READER = ("times far away from all others", "work of several devices")


def quick_rows(path: Path) -> list[tuple[Any, ...]]:
    [file] = walk(path).files
    columns = quick_steps(path, read_trace_head(file).base).columns
    count = len(columns["step"])
    lists = [[None] * count if columns[name] is None else columns[name].tolist() for name in COLUMNS]
    return sorted(zip(*lists, strict=True))


def whole_rows(path: Path, scratch: Path) -> list[tuple[Any, ...]]:
    batch, _ = read_all(READER, path, scratch)
    assert all("left out" in warning.message for warning in batch.warnings)
    return sorted(rows(batch, "steps", ", ".join(f'"{name}"' for name in COLUMNS)))


def written(path: Path, events: list[dict[str, Any]], **around: Any) -> Path:
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": [], **around, "traceEvents": events, "tail": [1]})
    )
    return path


@needs_fixtures
@pytest.mark.parametrize("directory", [HTA, NANOSECONDS], ids=["hta", "nanoseconds"])
def test_real_traces_give_the_same_steps_to_the_nanosecond(directory: Path, tmp_path: Path) -> None:
    for path in directory.iterdir():
        assert quick_rows(path) == whole_rows(path, tmp_path)


_SPAN = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "i", "M"]),
        "cat": st.sampled_from(
            [
                "kernel",
                "Kernel",
                "gpu_memcpy",
                "gpu_memset",
                "cpu_op",
                "Trace",
                "gpu_user_annotation",
                "user_annotation",
                "cuda_runtime",
                "cuda_driver",
                "Runtime",
                None,
            ]
        ),
        "name": st.sampled_from(
            [
                "gemm",
                "ncclKernel_AllReduce",
                "void RCCL",
                "ProfilerStep#7",
                "ProfilerStep#8",
                "",
                "enumerate(DataLoader)#_Next",
                "Optimizer.step#Adam.step",
                "Optimizer.step#SGD.step",
                '[["ph"]}',
                None,
            ]
        ),
        "ts": st.one_of(st.none(), st.integers(0, 4_000), st.floats(0, 4_000), st.floats(1.7e15, 1.7e15 + 4_000)),
        "dur": st.one_of(st.none(), st.integers(-2, 900), st.floats(-0.001, 900)),
        "args": st.one_of(
            st.just({}),
            st.just({"Collective name": "allreduce"}),
            st.just({"Collective name": None}),
            st.fixed_dictionaries({"correlation": CORRELATIONS, "stream": st.sampled_from([7, 20, None])}),
            st.fixed_dictionaries({"correlation": CORRELATIONS, "device": st.sampled_from([0, 1])}),
        ),
    }
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    events=st.lists(_SPAN, max_size=12),
    base=st.sampled_from([0, 1_700_000_000_000_000_000]),
    ends=st.sampled_from([STEP, {**STEP, "name": "Optimizer.step#Adam.step"}, KERNEL]),
)
def test_any_trace_gives_the_same_steps(
    events: list[dict[str, Any]], base: int, ends: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "rank-0.json", [ends, KERNEL, *events], baseTimeNanoseconds=base)
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    try:
        quick = quick_rows(path)
    except UnsupportedTrace as error:
        # Only the full reader looks for what repeats, for wrong times and for several devices.
        assert ("inferred" in str(error) and ends is KERNEL) or str(error) in LEFT_TO_THE_FULL_READER
    else:
        assert quick == whole_rows(path, scratch)


@pytest.mark.parametrize(
    "events",
    [
        [STEP, {**KERNEL, "cat": "cpu_op"}],
        [STEP, {**KERNEL, "ts": "10.000"}],
        [KERNEL, {**STEP, "name": "ProfilerStep#3 (again)"}],
        [STEP, KERNEL, {**KERNEL, "ts": 1e18}],
        [STEP, {**KERNEL, "args": "none"}],
        [STEP, {**KERNEL, "args": {"correlation": "12"}}],
    ],
    ids=["no device", "times as text", "strange step", "beyond 64 bits", "arguments as text", "correlation as text"],
)
def test_unusual_traces_are_left_to_the_full_reader(events: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTrace):
        quick_steps(written(tmp_path / "rank-0.json", events), 0)


def test_a_cut_off_trace_is_left_to_the_full_reader(tmp_path: Path) -> None:
    path = written(tmp_path / "rank-0.json", [STEP, KERNEL] * 50)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UnsupportedTrace):
        quick_steps(path, 0)
    packed = tmp_path / "rank-0.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(UnsupportedTrace):
        quick_steps(packed, 0)


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("size", [1, 200, 1 << 20])
def test_pieces_hold_every_event_once(
    as_list: bool, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [{"ph": "X", "name": f'kernel {n} }},{{"ph"', "args": {"of": [{"n": n}]}} for n in range(100)]
    text = json.dumps(events if as_list else {"before": [{}], "traceEvents": events, "after": {"list": [1, 2]}})
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(text[at : at + 97].encode()) for at in range(0, len(text), 97)))
    pieces = list(event_pieces(path, size=size))
    assert [event for piece in pieces for event in msgspec.json.decode(piece)] == events
    assert len(pieces) > 10 if size == 200 else len(pieces) >= 1


def test_a_large_trace_of_another_order_is_not_read_in_one_piece(tmp_path: Path) -> None:
    events = [{"name": f"kernel {n}", "ph": "X"} for n in range(100)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    [piece] = event_pieces(path, size=200)
    assert msgspec.json.decode(piece) == events
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(
        b"".join(gzip.compress(part.encode()) for part in (path.read_text()[:500], path.read_text()[500:]))
    )
    with pytest.raises(FormatError, match="one piece"):
        list(event_pieces(packed, size=200, most=1000))


def test_a_file_without_events_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(FormatError, match="traceEvents"):
        list(event_pieces(tmp_path / "other.json"))
