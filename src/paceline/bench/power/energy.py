"""Power, energy and utilisation of the cards, sampled while a run is measured.

average_power       = energy / time, W          max_power = the highest sample, W
energy_consumption  = integral of the power over the run, J (trapezoids between samples)
resource_util_ratio = mean utilisation of the cards, 0 to 1
efficientcy         = samples per joule = throughput / average_power
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from paceline.bench.power.power_meters import PowerMeter, PowerReading, find_meter
from paceline.bench.result import EnergyPart

INTERVAL = 1.0


@dataclass
class PowerSampler:
    """A context manager that samples in its own thread; does nothing where there is no meter."""

    interval: float = INTERVAL
    meter: PowerMeter | None = field(default_factory=find_meter)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._samples: list[tuple[float, PowerReading]] = []
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> PowerSampler:
        if self.meter is not None:
            self._thread = threading.Thread(target=self._watch, name="paceline-energy", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def energy(self) -> EnergyPart:
        """Summary of the samples so far."""
        return summary(self.meter.name if self.meter else None, self._samples)

    def _watch(self) -> None:
        assert self.meter is not None
        while True:
            reading = self.meter.read()
            if reading is not None:
                self._samples.append((self.clock(), reading))
            if self._done.wait(self.interval):
                break
        last = self.meter.read()  # so that the integral reaches the end of the run
        if last is not None:
            self._samples.append((self.clock(), last))


def summary(source: str | None, samples: list[tuple[float, PowerReading]]) -> EnergyPart:
    if not samples:
        return EnergyPart(source=source)
    powers = [(at, reading.power) for at, reading in samples if reading.power is not None]
    used = [reading.utilisation for _, reading in samples if reading.utilisation is not None]
    energy = _integral(powers) if len(powers) > 1 else None
    seconds = powers[-1][0] - powers[0][0] if powers else 0.0
    return EnergyPart(
        source=source,
        samples=len(samples),
        cards=samples[-1][1].cards,
        average_power=energy / seconds if energy is not None and seconds > 0 else powers[0][1] if powers else None,
        max_power=max((power for _, power in powers), default=None),
        energy_consumption=energy,
        resource_util_ratio=sum(used) / len(used) if used else None,
    )


def _integral(powers: list[tuple[float, float]]) -> float:
    return sum((later - sooner) * (a + b) / 2 for (sooner, a), (later, b) in pairwise(powers))
