"""The hardware profile: nominal link speeds, packet sizes, memory sizes and peak rates, editable in one file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.diagnosis.knowledge import parse_toml, read_small_file

_KNOWN = {"generation", "transport", "memory", "peak_tflops"}


@dataclass(frozen=True)
class TransportProfile:
    bandwidth: float
    """GB/s with large packets."""
    packet: int
    """Bytes per packet from which bandwidth decides, not latency."""


@dataclass(frozen=True)
class Hardware:
    transports: Mapping[str, TransportProfile]
    memory_gib: tuple[float, ...]
    peak_tflops: Mapping[str, float]
    """By generation, matrix work in 16 bits."""
    generation: str = ""
    """Of the cards that recorded; empty = not named."""

    def memory_for(self, peak: int) -> int:
        """The smallest common device memory that holds a peak, in bytes."""
        return next((int(size * 2**30) for size in self.memory_gib if size * 2**30 >= peak), peak)

    @property
    def peak_rate(self) -> float | None:
        """FLOP/s of one card, None where the generation was not named."""
        return self.peak_tflops[self.generation] * 1e12 if self.generation else None

    @property
    def nominal_speeds(self) -> dict[str, float]:
        """GB/s each transport reaches with large packets."""
        return {name: transport.bandwidth for name, transport in self.transports.items()}


@cache
def default_hardware() -> Hardware:
    """The profile in hardware.toml of this package."""
    return _hardware(_default(), Path("hardware.toml"))


def load_hardware(path: Path) -> Hardware:
    """A user's profile; what it leaves out is taken from the default. FormatError names the file and the key."""
    given = parse_toml(read_small_file(path), path)
    for key in given.keys() - _KNOWN:
        raise FormatError(f"{path}: {key}: unknown key; known: {', '.join(sorted(_KNOWN))}", file=path)
    return _hardware(_merged(_default(), given), path)


def _default() -> dict[str, object]:
    return parse_toml((files("paceline.diagnosis") / "hardware.toml").read_bytes(), Path("hardware.toml"))


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _hardware(data: Mapping[str, object], path: Path) -> Hardware:
    transports = {
        name: TransportProfile(
            _positive(entry.get("bandwidth"), f"transport.{name}.bandwidth", path),
            int(_positive(entry.get("packet"), f"transport.{name}.packet", path)),
        )
        for name in _table(data, "transport", path)
        for entry in [_table(_table(data, "transport", path), name, path, f"transport.{name}")]
    }
    sizes = _table(data, "memory", path).get("sizes")
    if not isinstance(sizes, list):
        raise FormatError(f"{path}: memory.sizes: expected a list of GiB, got {sizes!r}", file=path)
    peaks = {
        name: _positive(value, f"peak_tflops.{name}", path) for name, value in _table(data, "peak_tflops", path).items()
    }
    generation = data.get("generation", "")
    if not isinstance(generation, str) or (generation and generation not in peaks):
        known = ", ".join(peaks)
        raise FormatError(f"{path}: generation: {generation!r} is not in [peak_tflops]; known: {known}", file=path)
    memory = tuple(sorted(_positive(size, "memory.sizes", path) for size in sizes))
    return Hardware(transports, memory, peaks, generation)


def _table(data: Mapping[str, object], key: str, path: Path, named: str = "") -> Mapping[str, object]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise FormatError(f"{path}: {named or key}: expected a table, got {value!r}", file=path)
    return value


def _positive(value: object, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise FormatError(f"{path}: {key}: expected a number above 0, got {value!r}", file=path)
    return float(value)
