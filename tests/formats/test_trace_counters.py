"""Counter samples are picked out of a trace without parsing it, or the trace is handed back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from paceline.formats.trace_counters import counters_only

SAMPLE = {"name": "AI Core Freq", "pid": 1, "tid": 0, "ts": "12.500", "args": {"MHz": 1800}, "ph": "C"}
SPAN = {"ph": "X", "name": "MatMul", "ts": "1.0", "dur": 2, "args": {"note": 'says "ph": "C"'}}


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_samples_are_found_wherever_their_phase_stands(tmp_path: Path, separators: tuple[str, str]) -> None:
    turned = dict(reversed(SAMPLE.items()))
    trace = tmp_path / "trace_view.json"
    trace.write_text(json.dumps([SPAN, SAMPLE, SPAN, turned, SPAN], separators=separators))
    with counters_only(trace) as small:
        assert small != trace
        assert json.loads(small.read_text()) == [SAMPLE, turned]


def test_a_trace_without_counters_gives_none(tmp_path: Path) -> None:
    trace = tmp_path / "trace_view.json"
    trace.write_text(json.dumps([SPAN] * 3))
    with counters_only(trace) as small:
        assert json.loads(small.read_text()) == []


def test_what_cannot_be_scanned_is_handed_back(tmp_path: Path) -> None:
    packed, named, many = tmp_path / "a.json.gz", tmp_path / "b.json", tmp_path / "c.json"
    packed.write_bytes(gzip.compress(json.dumps([SAMPLE]).encode()))
    named.write_text(json.dumps([SAMPLE | {"name": "频率"}], ensure_ascii=False), encoding="utf-8")
    many.write_text(json.dumps([SAMPLE] * 6_000))
    for trace in (packed, named, many):
        with counters_only(trace) as same:
            assert same == trace
