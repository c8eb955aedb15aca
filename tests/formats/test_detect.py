"""Readers that are not imported for a tree would have found nothing in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.formats.detect import find_parts, readers
from paceline.storage.tree import walk
from reading import FIXTURES, needs_fixtures


@needs_fixtures
@pytest.mark.parametrize(
    "name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()) if FIXTURES.is_dir() else []
)
def test_what_is_found_is_what_all_readers_find(name: str) -> None:
    tree = walk(FIXTURES / name)
    everything = [(part.format, part.root, part.rank) for reader in readers() for part in reader.find(tree)]
    assert [(part.format, part.root, part.rank) for part in find_parts(tree)] == everything


def test_a_packed_trace_imports_no_other_reader(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json.gz").write_bytes(b"not one")
    script = (
        "import sys; from pathlib import Path; from paceline.formats.detect import find_parts;"
        "from paceline.storage.tree import walk; list(find_parts(walk(Path(sys.argv[1]))));"
        "print([name for name in sys.modules if name.startswith('paceline.formats.mind')])"
    )
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
