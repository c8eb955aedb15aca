"""Read power and utilisation of this machine's cards from npu-smi or nvidia-smi."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

_PATIENCE = 15.0
"""Seconds; npu-smi takes several on a host with 16 cards."""
_MOST = 1 << 20
_BUS = re.compile(r"(?:[0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|NA")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class PowerReading:
    """All cards of this machine at one moment; None where a card does not report it."""

    power: float | None
    """Watts, sum over the cards."""
    utilisation: float | None
    """0 to 1, mean over the cards."""
    cards: int


@dataclass(frozen=True)
class PowerMeter:
    """A program that prints power and utilisation."""

    name: str
    command: tuple[str, ...]
    parse: Callable[[str], PowerReading | None]

    def read(self) -> PowerReading | None:
        """None when the program fails, takes too long or shows no card."""
        try:
            done = subprocess.run(self.command, capture_output=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return self.parse(done.stdout[:_MOST].decode(errors="replace")) if done.returncode == 0 else None


def find_meter() -> PowerMeter | None:
    """The first program on the PATH that reports cards."""
    for meter in (NPU_SMI, NVIDIA_SMI):
        if shutil.which(meter.command[0]) and meter.read() is not None:
            return meter
    return None


def parse_npu_smi(text: str) -> PowerReading | None:
    """`npu-smi info`: two rows per chip, the first with its power, the second with its utilisation.

    Of an NPU with two chips only one row has the power of both; the other has "-".
    """
    powers: dict[str, list[float | None]] = {}
    uses: list[float | None] = []
    npu: str | None = None
    for line in text.splitlines():
        if "Process id" in line:
            break
        cells = [cell.split() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3 or not all(cells) or not cells[0][0].isdecimal():
            continue
        if _BUS.fullmatch(cells[1][0]) and npu is not None:
            uses.append(_number(cells[2][0]))
            npu = None
        else:
            npu = cells[0][0]
            powers.setdefault(npu, []).append(_number(cells[2][0]))
    by_card = [_sum_known(chips) for chips in powers.values()]
    return _reading(by_card, uses, len(uses))


def parse_nvidia_smi(text: str) -> PowerReading | None:
    """`nvidia-smi --query-gpu=index,power.draw,utilization.gpu --format=csv,noheader,nounits`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if len(row) == 3 and row[0].isdecimal()]
    return _reading([_number(row[1]) for row in rows], [_number(row[2]) for row in rows], len(rows))


def _reading(powers: list[float | None], percents: list[float | None], cards: int) -> PowerReading | None:
    if not cards:
        return None
    power = [value for value in powers if value is not None]
    used = [value for value in percents if value is not None]
    # A sum without some of the cards would be wrong.
    whole = sum(power) if power and len(power) == len(powers) else None
    return PowerReading(whole, sum(used) / len(used) / 100 if used else None, cards)


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


NPU_SMI = PowerMeter("npu-smi", ("npu-smi", "info"), parse_npu_smi)
NVIDIA_SMI = PowerMeter(
    "nvidia-smi",
    ("nvidia-smi", "--query-gpu=index,power.draw,utilization.gpu", "--format=csv,noheader,nounits"),
    parse_nvidia_smi,
)
