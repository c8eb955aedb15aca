"""The hardware profile: what is assumed, what a file changes, and what its author is told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from paceline.core.errors import FormatError
from paceline.diagnosis.hardware import Hardware, TransportProfile, default_hardware, load_hardware

GIB = 2**30


def load(tmp_path: Path, content: str) -> Hardware:
    (tmp_path / "ours.toml").write_text(content, encoding="utf-8")
    return load_hardware(tmp_path / "ours.toml")


def test_the_default_profile() -> None:
    hardware = default_hardware()
    speeds = {name: (link.bandwidth, link.reached) for name, link in hardware.transports.items()}
    assert speeds["HCCS"] == speeds["SDMA"] == (28, 18) and speeds["SIO"] == (224, 155)
    assert speeds["RDMA"] == speeds["ROCE"] == (12.5, 11.25)
    assert hardware.transports["RDMA"] == TransportProfile(12.5, 524_288, 11.25, 7.0)
    assert hardware.generation == "" and hardware.peak_rate is None


@pytest.mark.parametrize(
    ("peak", "memory"), [(0, 16 * GIB), (16 * GIB, 16 * GIB), (16 * GIB + 1, 24 * GIB), (192 * GIB + 1, 192 * GIB + 1)]
)
def test_the_smallest_card_that_holds_a_peak(peak: int, memory: int) -> None:
    assert replace(default_hardware(), memory_is_given=True).memory_for(peak) == memory
    assert default_hardware().memory_for(peak) is None  # nobody said which cards these are


def test_a_file_names_only_what_differs(tmp_path: Path) -> None:
    hardware = load(
        tmp_path,
        'generation = "910B3"\n[transport.RDMA]\nbandwidth = 25\n[transport.NEW]\nbandwidth = 1\npacket = 2.0\n'
        "[memory]\nsizes = [64.5, 32]\n",
    )
    assert hardware.peak_rate == 294.9e12
    # The user's own words, then the links of the card, then the default.
    assert hardware.transports["RDMA"] == TransportProfile(25.0, 524_288, 20.0, 7.0)
    assert hardware.transports["ROCE"] == TransportProfile(25.0, 524_288, 20.0, 7.0)
    assert hardware.transports["NEW"] == TransportProfile(1.0, 2, 0.9, 10.0)
    assert hardware.transports["SIO"] == default_hardware().transports["SIO"]
    assert hardware.memory_gib == (32.0, 64.5) and hardware.memory_for(40 * GIB) == int(64.5 * GIB)
    assert hardware.peak_tflops == default_hardware().peak_tflops


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("speed = 1", "speed: unknown key; known: family, generation, memory, peak_tflops, transport"),
        ("transport = 3", "transport: expected a table, got 3"),
        ("transport.RDMA = 3", "transport.RDMA: expected a table, got 3"),
        ("memory = 3", "memory: expected a table, got 3"),
        ("memory.sizes = 32", "memory.sizes: expected a list of GiB, got 32"),
        ("memory.sizes = [32, 0]", "memory.sizes: expected a number above 0, got 0"),
        ("transport.NEW.packet = 1", "transport.NEW.bandwidth: expected a number above 0, got None"),
        ("transport.RDMA.bandwidth = true", "transport.RDMA.bandwidth: expected a number above 0, got True"),
        ("transport.RDMA.bandwidth = inf", "transport.RDMA.bandwidth: expected a number above 0, got inf"),
        ("transport.RDMA.bandwidth = nan", "transport.RDMA.bandwidth: expected a number above 0, got nan"),
        ("transport.RDMA.packet = -1", "transport.RDMA.packet: expected a number above 0, got -1"),
        ("family.A2.generations = 3", "family.A2.generations: expected a list of names, got 3"),
        ("family.A2 = 3", "family.A2: expected a table, got 3"),
        ("transport.RDMA.reached = 0", "transport.RDMA.reached: expected a number above 0, got 0"),
        ("transport.RDMA.latency = '1'", "transport.RDMA.latency: expected a number above 0, got '1'"),
        ("peak_tflops.X = '1'", "peak_tflops.X: expected a number above 0, got '1'"),
        ("generation = 3", "generation: 3 is not in [peak_tflops]; known: 910A, 910B1, 910B2"),
        ("generation = 'X'", "generation: 'X' is not in [peak_tflops]; known: 910A, 910B1, 910B2"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(FormatError) as error:
        load(tmp_path, content)
    assert str(error.value).startswith(f"{tmp_path}/ours.toml: {problem}")
    assert error.value.file == tmp_path / "ours.toml"


@pytest.mark.parametrize(("own", "reached"), [("", 137.0), ("[transport.HCCS]\nreached = 100", 100.0)])
def test_links_of_the_card_that_is_named(tmp_path: Path, own: str, reached: float) -> None:
    link = load(tmp_path, f'generation = "910C"\n{own}').transports["HCCS"]
    assert (link.bandwidth, link.reached) == (196.0, reached)


def test_nothing_reaches_more_than_its_design(tmp_path: Path) -> None:
    assert load(tmp_path, "transport.RDMA.bandwidth = 0.5").transports["RDMA"].reached == 0.5


def test_small_numbers_are_numbers(tmp_path: Path) -> None:
    assert load(tmp_path, "transport.RDMA.bandwidth = 0.5").nominal_speeds["RDMA"] == 0.5


def test_a_profile_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        default_hardware().generation = "910A"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        default_hardware().transports["RDMA"].packet = 1  # type: ignore[misc]
