"""The hardware profile: nominal link speeds, packet sizes, memory sizes and peak rates, editable in one file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.diagnosis.knowledge import parse_toml, read_small_file

_KNOWN = {"generation", "transport", "family", "memory", "peak_tflops"}

LATENCY_US = 10.0
"""Of one message, where a profile does not tell."""


@dataclass(frozen=True)
class TransportProfile:
    """One link, one direction."""

    bandwidth: float
    """GB/s by design."""
    packet: int
    """Bytes per packet from which bandwidth decides, not latency."""
    reached: float
    """GB/s that large messages reach."""
    latency: float = LATENCY_US
    """µs of one message."""


@dataclass(frozen=True)
class Hardware:
    transports: Mapping[str, TransportProfile]
    memory_gib: tuple[float, ...]
    peak_tflops: Mapping[str, float]
    """By generation, matrix work in 16 bits."""
    generation: str = ""
    """Of the cards that recorded; empty = not named."""
    memory_is_given: bool = False
    """Whether the user named the cards' memory; what is common elsewhere is no evidence."""

    def memory_for(self, peak: int) -> int | None:
        """The smallest memory of the user's cards that holds a peak, in bytes; None = not known."""
        fitting = (int(size * 2**30) for size in self.memory_gib if size * 2**30 >= peak)
        return next(fitting, peak) if self.memory_is_given else None

    @property
    def peak_rate(self) -> float | None:
        """FLOP/s of one card, None where the generation was not named."""
        return self.peak_tflops[self.generation] * 1e12 if self.generation else None

    @property
    def nominal_speeds(self) -> dict[str, float]:
        """GB/s of each transport by design."""
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
    below = _default()
    merged = _merged(below, given)
    family = _family_transports(merged, path)
    if isinstance(merged.get("transport"), dict) and family:
        # The links of the card that is named, but the user's own words come last.
        transports = _merged(_table(below, "transport", path), family)
        merged["transport"] = _merged(transports, _table({"transport": {}, **given}, "transport", path))
    return replace(_hardware(merged, path), memory_is_given="memory" in given)


def _family_transports(data: Mapping[str, object], path: Path) -> Mapping[str, object]:
    """Links of the cards whose generation is named."""
    generation = data.get("generation", "")
    for name in _table(data, "family", path):
        family = _table(_table(data, "family", path), name, path, f"family.{name}")
        names = family.get("generations")
        if not isinstance(names, list):
            raise FormatError(f"{path}: family.{name}.generations: expected a list of names, got {names!r}", file=path)
        if generation in names:
            return _table(family, "transport", path, f"family.{name}.transport")
    return {}


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
        name: _transport(_table(_table(data, "transport", path), name, path, f"transport.{name}"), name, path)
        for name in _table(data, "transport", path)
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


def _transport(entry: Mapping[str, object], name: str, path: Path) -> TransportProfile:
    """What large messages reach is 0.9 of the design where it is not given."""
    bandwidth = _positive(entry.get("bandwidth"), f"transport.{name}.bandwidth", path)
    reached = min(bandwidth, _positive(entry.get("reached", 0.9 * bandwidth), f"transport.{name}.reached", path))
    return TransportProfile(
        bandwidth,
        int(_positive(entry.get("packet"), f"transport.{name}.packet", path)),
        reached,
        _positive(entry.get("latency", LATENCY_US), f"transport.{name}.latency", path),
    )


def _table(data: Mapping[str, object], key: str, path: Path, named: str = "") -> Mapping[str, object]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise FormatError(f"{path}: {named or key}: expected a table, got {value!r}", file=path)
    return value


def _positive(value: object, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise FormatError(f"{path}: {key}: expected a number above 0, got {value!r}", file=path)
    return float(value)
