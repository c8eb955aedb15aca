"""Chrome traces into DuckDB: the list inside an object is found whatever follows it, and times stay exact."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.formats.chrome_trace.trace_events import load_trace, read_metadata

EVENT = {"ph": "X", "name": "a", "ts": 1.5, "dur": 2, "args": {"dims": [[1, 2], []], "text": '],"x":[{}]}'}}


def load(path: Path) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    load_trace(connection, path)
    return connection.execute("SELECT name, ts, dur FROM trace").fetchall()


keys = st.text(max_size=4).filter(lambda key: key not in ("ph", "traceEvents"))
values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.sampled_from(["]", "},", "ph", '"ph":', '"]}', "\\"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)
metadata = st.dictionaries(keys, values, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), metadata, metadata)
def test_events_are_found_between_any_metadata(
    tmp_path_factory: pytest.TempPathFactory, count: int, before: dict[str, object], behind: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    head, tail = json.dumps(before)[1:-1], json.dumps({"INFO": ["x] y"], **behind})[1:-1]
    events = json.dumps([EVENT] * count)
    path.write_text("{" + (head + ", " if head else "") + f'"traceEvents": {events}, {tail}' + "}")
    assert load(path) == [("a", 1500, 2000)] * count
    assert set(json.loads(read_metadata(path))) == {"traceEvents", "INFO", *before, *behind}


def test_metadata_of_a_packed_trace_is_before_the_events(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"a": 1, "traceEvents": [{"ph": "X"}], "b": 2}'))
    assert json.loads(read_metadata(path)) == {"a": 1, "traceEvents": 0}


@pytest.mark.parametrize(
    "text", ['{"traceEvents": [{"ph": "X", "args": {"a": [1]', '{"traceEvents": [{"ph": "X"}]', "{}"]
)
def test_a_list_that_does_not_end_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(FormatError):
        load(tmp_path / "trace.json")


@given(st.integers(0, 2**62))
@settings(max_examples=30, deadline=None)
def test_times_in_strings_are_exact_to_the_nanosecond(tmp_path_factory: pytest.TempPathFactory, ns: int) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(json.dumps([{"name": "a", "ts": f"{ns // 1000}.{ns % 1000:03d}", "dur": "0.001"}]))
    assert load(path) == [("a", ns, 1)]


@given(st.integers(-(2**52), 2**52))
@settings(max_examples=30, deadline=None)
def test_times_in_numbers_are_exact_where_a_double_is(tmp_path_factory: pytest.TempPathFactory, ns: int) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(f'{{"traceEvents": [{{"ph": "X", "name": "a", "ts": {ns / 1000!r}, "dur": 1}}]}}')
    assert load(path) == [("a", ns, 1000)]
