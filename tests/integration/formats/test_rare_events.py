"""Counter samples and track names are picked out of a trace without parsing it, or are left to the parser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.formats.ascend_text.reader import READER
from paceline.formats.chrome_trace.rare_events import RareEvent, rare_events
from support.reader_helpers import read_all, rows

SAMPLE = {"name": "AI Core Freq", "pid": 1, "tid": 0, "ts": "12.500", "args": {"MHz": 1800}, "ph": "C"}
SPAN = {
    "ph": "X",
    "name": "MatMul",
    "pid": 1,
    "tid": 7,
    "ts": "1.0",
    "dur": 2,
    "args": {"note": 'says "ph": "C"', "graph": "M"},
}
PROCESS = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}
THREAD = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "流 7"}}


def trace(path: Path, events: list[Any], **options: Any) -> Path:
    path.write_text(json.dumps(events, **options), encoding="utf-8")
    return path


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_rare_events_are_found_wherever_their_phase_is(
    tmp_path: Path, separators: tuple[str, str], ascii_only: bool
) -> None:
    turned = dict(reversed(SAMPLE.items()))
    events = [SPAN, SAMPLE, THREAD, SPAN, turned, PROCESS]
    found = rare_events(trace(tmp_path / "t.json", events, separators=separators, ensure_ascii=ascii_only))
    assert found.samples is not None
    assert found.names is not None
    assert [(event.name, event.args, bytes(event.ts)) for event in found.samples] == [
        ("AI Core Freq", {"MHz": 1800}, b'"12.500"')
    ] * 2
    assert [(event.name, event.pid, event.tid, event.args["name"]) for event in found.names] == [
        ("thread_name", 1, 7, "流 7"),
        ("process_name", 1, None, "Ascend Hardware"),
    ]


def test_a_trace_of_spans_has_none(tmp_path: Path) -> None:
    found = rare_events(trace(tmp_path / "t.json", [SPAN] * 3))
    assert (found.samples, found.names) == ([], [])


def test_a_changed_trace_is_scanned_again(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.json", [SPAN, PROCESS])
    assert names_of(path) == ["process_name"]
    assert names_of(trace(path, [SPAN, PROCESS, THREAD])) == ["process_name", "thread_name"]


def names_of(path: Path) -> list[str]:
    names: list[RareEvent] | None = rare_events(path).names
    return [event.name for event in names or ()]


def test_what_cannot_be_picked_is_left_to_the_parser(tmp_path: Path) -> None:
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(json.dumps([SAMPLE, THREAD]).encode()))
    assert (rare_events(packed).samples, rare_events(packed).names) == (None, None)
    many = rare_events(trace(tmp_path / "many.json", [THREAD, *[SAMPLE] * 6_000]))
    assert many.samples is None
    assert many.names is not None
    odd = rare_events(trace(tmp_path / "odd.json", [SAMPLE, THREAD | {"pid": 1.5}]))
    assert odd.names is None
    assert odd.samples is not None


@pytest.mark.parametrize("repeated", [1, 6_000])
def test_tracks_and_counters_are_the_same_picked_and_parsed(tmp_path: Path, repeated: int) -> None:
    """6,000 times the same name or sample is too many to pick, and changes nothing else."""
    output = tmp_path / "host_1_20250101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    spans = [SPAN, SPAN | {"tid": 8}, SPAN | {"pid": "2", "tid": "a"}, {"ph": "X", "name": "Add", "ts": "2.001"}]
    zero = SAMPLE | {"args": {"MHz": 0, "of no counter": 5}, "ts": 13.25}
    trace(output / "trace_view.json", [*spans, *[PROCESS, THREAD, SAMPLE] * repeated, zero], ensure_ascii=False)
    (tmp_path / "scratch").mkdir()
    batch, _ = read_all(READER, tmp_path, tmp_path / "scratch")
    assert not batch.warnings
    assert sorted(rows(batch, "events", "track, name, start, duration")) == [
        ("/", "Add", 2001, None),
        ("2/a", "MatMul", 1000, 2000),
        ("Ascend Hardware/8", "MatMul", 1000, 2000),
        ("Ascend Hardware/流 7", "MatMul", 1000, 2000),
    ]
    assert set(rows(batch, "counters", "name, series, time, value")) == {
        ("AI Core Freq", "MHz", 12_500, 1800.0),
        ("AI Core Freq", "MHz", 13_250, 0.0),
    }
