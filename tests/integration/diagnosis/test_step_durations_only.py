"""Recordings that hold nothing but the durations of steps and how they divide."""

from __future__ import annotations

import pytest

import paceline
from support.reader_helpers import FIXTURES

RECORDING = FIXTURES / "real" / "msinsight" / "db-level0-analysis-only"


@pytest.mark.skipif(not RECORDING.is_dir(), reason=f"real recordings not found at {FIXTURES} (set PACELINE_FIXTURES)")
def test_a_real_recording_of_level_0_is_diagnosed_with_doubt() -> None:
    """Its steps say how they divide, without begins and collectives; nothing is said of it with high confidence."""
    diagnosis = paceline.diagnose(paceline.open(RECORDING))
    assert any("record with level 1" in warning for warning in diagnosis.run.warnings)
    assert all(finding.confidence < 0.6 and finding.doubts for finding in diagnosis.findings)
