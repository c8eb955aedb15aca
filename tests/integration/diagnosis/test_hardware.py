"""The hardware profile: ours is whole, a user's own changes what it names, and mistakes are told by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.errors import FormatError
from paceline.diagnosis.hardware import default_hardware, load_hardware


def test_ours_is_whole_and_names_no_generation() -> None:
    usual = default_hardware()
    assert {"HCCS", "RDMA", "PCIE"} <= set(usual.transports)
    assert usual.peak_rate is None and all(50 < peak < 5000 for peak in usual.peak_tflops.values())
    assert usual.memory_for(30 * 2**30) is None


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('generation = "ours"\n[transport.RDMA]\nbandwidth = 25\n[peak_tflops]\nours = 100\n')
    own, usual = load_hardware(path), default_hardware()
    assert own.peak_rate == 100e12
    assert own.nominal_speeds == {**usual.nominal_speeds, "RDMA": 25.0}
    assert own.transports["RDMA"].packet == usual.transports["RDMA"].packet and own.memory_gib == usual.memory_gib


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed = 7", "speed: unknown key; known: family, generation"),
        ('generation = "910Z"', "generation: '910Z' is not in"),
        ("generation = 7", "generation: 7 is not in"),
        ("[transport.HCCS]\nbandwidth = nan", r"transport\.HCCS\.bandwidth: expected a number above 0, got nan"),
        ("[transport.NEW]\nbandwidth = 1", r"transport\.NEW\.packet: expected a number above 0, got None"),
        ("transport = 7", "transport: expected a table, got 7"),
        ("[transport]\nHCCS = 7", r"transport\.HCCS: expected a table, got 7"),
        ("[memory]\nsizes = 7", r"memory\.sizes: expected a list"),
        ("[memory]\nsizes = [true]", r"memory\.sizes: expected a number above 0, got True"),
        ("[peak_tflops]\nx = '9'", r"peak_tflops\.x: expected a number above 0"),
        ("[", "not TOML in UTF-8"),
    ],
)
def test_a_mistake_is_told_by_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match=said) as error:
        load_hardware(path)
    assert str(error.value).startswith(f"{path}: ")
