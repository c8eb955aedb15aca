"""FLOPs against a real recording's own count."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.metrics.flops import rank_flops
from support.reader_helpers import FIXTURES, needs_fixtures


@needs_fixtures
def test_a_recordings_own_count_comes_first(tmp_path: Path) -> None:
    source = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "cluster_propose"
    with paceline.open(source, store=tmp_path) as run:
        table = rank_flops(run, "true")
    assert table.numbers["flops"] == pytest.approx([107146.763e6, 107145.034e6, 329608.369e6, 329612.400e6])
    assert table.texts["basis"] == ["recorded"] * 4
