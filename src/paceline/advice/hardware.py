"""The hardware profile: nominal link speeds, packet sizes and memory sizes, editable in one file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Transport:
    bandwidth: float
    """GB/s with large packets."""
    packet: int
    """Bytes below which latency decides."""


@dataclass(frozen=True)
class Hardware:
    transports: dict[str, Transport]
    memory_gib: tuple[float, ...]

    def memory_for(self, peak: int) -> int:
        """The smallest usual device memory that holds a peak, in bytes."""
        return next((int(size * 2**30) for size in self.memory_gib if size * 2**30 >= peak), peak)


@lru_cache
def load_hardware(path: Path | None = None) -> Hardware:
    data: dict[str, Any] = tomllib.loads((path or Path(__file__).with_name("hardware.toml")).read_text())
    transports = {
        name: Transport(float(entry["bandwidth"]), int(entry["packet"])) for name, entry in data["transport"].items()
    }
    return Hardware(transports, tuple(sorted(float(size) for size in data["memory"]["sizes"])))


def nominal_speeds() -> dict[str, float]:
    """GB/s each transport reaches with large packets."""
    return {name: transport.bandwidth for name, transport in load_hardware().transports.items()}
