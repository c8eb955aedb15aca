"""Read one part's tables straight through its reader, for tests of single formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from paceline.formats.reader import Part, Reader
from paceline.run.batch import Batch, new_batch
from paceline.storage.tree import walk
from paceline.tables import TABLES

FIXTURES = Path(os.environ.get("PACELINE_FIXTURES", Path(__file__).parents[2] / "shared" / "fixtures"))

needs_fixtures = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason=f"real recordings not found at {FIXTURES} (set PACELINE_FIXTURES)"
)


def read_all(reader: Reader, root: Path, tmp_path: Path) -> tuple[Batch, list[Part]]:
    """All tables of everything the reader finds below root; a section that fails leaves its warning in `failed`."""
    tree = walk(root)
    batch = new_batch(tree, tmp_path, tmp_path, content="0" * 8)
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


def rows(batch: Batch, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
    """Rows of a table that was read, [] when nothing of it was."""
    batch.flush()
    try:
        return batch.connection.execute(f'SELECT {columns} FROM "in_{table}" WHERE {where}').fetchall()
    except duckdb.CatalogException:
        return []
