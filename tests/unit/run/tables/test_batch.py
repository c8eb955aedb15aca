"""What a section reads is written before it ends where it is large, and removed if the section fails."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from paceline.run.tables import batch as batch_module
from paceline.run.tables.batch import BatchSink, open_batch
from paceline.storage.file_tree import Tree

EVENTS = frozenset({"events"})


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchSink:
    monkeypatch.setattr(batch_module, "BUFFERED_ROWS", 10)
    (tmp_path / "data").mkdir()
    return open_batch(Tree(tmp_path, ()), tmp_path / "data", tmp_path, content="0" * 8, threads=1)


def _read(sink: BatchSink, unit: int, chunks: int) -> None:
    sink.begin(unit=unit, rank=3, wanted=EVENTS)
    for chunk in range(chunks):
        sink.add("events", {"name": ["one"] * 6, "start": list(range(6 * chunk, 6 * chunk + 6)), "depth": [None] * 6})


def test_a_large_section_is_written_while_it_is_read(sink: BatchSink) -> None:
    _read(sink, 1, 5)
    assert len(list(sink.directory.glob("*.parquet"))) == 2 and len(sink._pending) == 1
    sink.commit()
    written = sink.write()
    assert [(file.rows, file.unit) for file in written] == [(12, 1), (12, 1), (6, None)]
    found = duckdb.sql(f"SELECT start, depth, rank, _unit FROM '{sink.directory}/*.parquet' ORDER BY start").fetchall()
    assert found == [(start, None, 3, 1) for start in range(30)]


def test_what_a_failed_section_has_written_is_removed(sink: BatchSink) -> None:
    _read(sink, 1, 1)
    sink.commit()
    _read(sink, 2, 5)
    sink.roll_back(ValueError("odd"), None)
    assert [(file.rows, file.unit) for file in sink.write()] == [(6, None)]
    assert len(list(sink.directory.glob("*.parquet"))) == 1
