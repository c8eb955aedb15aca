"""Read the tables of a recording directly with its reader, for tests of single formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from paceline.core.schema import TABLES
from paceline.formats.base import RankRecording, Reader
from paceline.run.tables.batch import BatchSink, open_batch
from paceline.storage.file_tree import walk

FIXTURES = Path(os.environ.get("PACELINE_FIXTURES", Path(__file__).parents[3] / "shared" / "fixtures"))

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason=f"real recordings not found at {FIXTURES} (set PACELINE_FIXTURES)"
)


def read_all(reader: Reader, root: Path, tmp_path: Path) -> tuple[BatchSink, list[RankRecording]]:
    """All tables of all recordings that the reader finds below root; a section that fails leaves a warning."""
    tree = walk(root)
    batch = open_batch(tree, tmp_path, tmp_path, content="0" * 8)
    parts = list(reader.find(tree))
    collected = []
    for part in parts:
        for section in part.sections:
            batch.begin(unit=1, rank=part.rank, wanted=frozenset(TABLES))
            try:
                section.read(batch)
                batch.commit()
            except Exception as error:
                batch.roll_back(error, section.files[0].path if section.files else None)
            collected += batch.warnings
    batch.warnings = collected
    return batch, parts


def rows(batch: BatchSink, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
    """Rows of a table, [] if nothing was read."""
    batch.flush()
    try:
        return batch.connection.execute(f'SELECT {columns} FROM "in_{table}" WHERE {where}').fetchall()
    except duckdb.CatalogException:
        return []
