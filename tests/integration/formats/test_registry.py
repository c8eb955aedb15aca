"""Readers that are not imported for a tree would find nothing in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.formats.registry import find_recordings, readers
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures


@needs_fixtures
@pytest.mark.parametrize(
    "name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()) if FIXTURES.is_dir() else []
)
def test_as_much_is_found_as_by_all_readers(name: str) -> None:
    tree = walk(FIXTURES / name)
    by_all = [(each.format, each.root, each.rank) for reader in readers() for each in reader.find(tree)]
    assert [(each.format, each.root, each.rank) for each in find_recordings(tree)] == by_all


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("rank-0.json.gz", ["paceline.formats.kineto.reader"]),
        ("rank-0.json", ["paceline.formats.kineto.reader", "paceline.formats.rank_table.reader"]),
        ("steps-000001.jsonl", ["paceline.formats.recorder.reader"]),
        ("notes.md", []),
    ],
)
def test_only_readers_of_formats_that_may_be_there_are_imported(tmp_path: Path, name: str, imported: list[str]) -> None:
    (tmp_path / name).write_bytes(b"not a recording")
    script = (
        "import sys; from pathlib import Path; from paceline.formats.registry import find_recordings;"
        "from paceline.storage.file_tree import walk; list(find_recordings(walk(Path(sys.argv[1]))));"
        "print(*(name for name in sys.modules if name.startswith('paceline.formats.') and name.endswith('.reader')))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == imported
