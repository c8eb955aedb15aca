"""Result files as trainings leave them, and results as `bench run` writes them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from paceline.bench.result import BenchResult, Measurement, Provenance, Repetition, SpreadPart
from paceline.bench.spread import spread


def cluster(where: Path, throughputs: Sequence[float], accuracy: float | None = 0.75) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    for rank, value in enumerate(throughputs):
        (where / f"throughput_{rank}.json").write_text(str(value))
    (where / "ranksize.json").write_text(str(len(throughputs)))
    if accuracy is not None:
        (where / "accuracy.json").write_text(str(accuracy))
    return where


def single_servers(where: Path, nodes: Sequence[Sequence[float]], accuracies: Sequence[float]) -> Path:
    for node, (cards, accuracy) in enumerate(zip(nodes, accuracies, strict=True)):
        cluster(where / str(node), cards, None)
        (where / str(node) / "ranksize.json").unlink()
        (where / f"accuracy_{node}.json").write_text(str(accuracy))
    (where / "accuracy.json").write_text(str(accuracies[0]))
    (where / "ranksize.json").write_text(str(len(nodes[0])))
    return where


def cards_adding_up_to(total: float, count: int) -> list[float]:
    """Values whose sum, one added after the other, is this number to the last bit."""
    cards = [total / count * (1 + 0.001 * (card - count // 2)) for card in range(count - 1)]
    so_far = 0.0
    for card in cards:
        so_far += card
    last = total - so_far
    while so_far + last != total:
        last = math.nextafter(last, math.inf if so_far + last < total else -math.inf)
    return [*cards, last]


def paceline(*words: object, cwd: Path | None = None, patience: float = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=patience, check=False)


def a_result(
    throughputs: Sequence[float] = (100.0,), *, name: str = "model", number: int = 0, ranks: int = 4
) -> BenchResult:
    """A finished benchmark of one size, repeated."""
    part = SpreadPart(**vars_of(spread(throughputs)))
    repetitions = tuple(
        Repetition(
            job_id=f"job{n}",
            throughput=value,
            accuracy=0.75,
            throughput_list=(value,),
            accuracy_list=(0.75,),
            cards=((value / ranks,) * ranks,),
        )
        for n, value in enumerate(throughputs)
    )
    size = Measurement(
        ranks=ranks, nodes=1, per_rank=part.mean / ranks, throughput=part, accuracy=None, repetitions=repetitions
    )
    made = Provenance(
        paceline="0",
        python="3",
        platform="test",
        host="here",
        cores=2,
        cards=None,
        frameworks={},
        commit=None,
        command=("paceline",),
        config="bench.yaml",
        config_sha256="0" * 64,
    )
    nothing = dict.fromkeys(
        (
            "accuracy",
            "average_power",
            "max_power",
            "energy_consumption",
            "efficientcy",
            "resource_util_ratio",
            "prepare_start_time",
            "prepare_end_time",
            "dataload_start_time",
            "dataload_end_time",
            "proc_start_time",
            "proc_end_time",
            "total_end_time",
        )
    )
    return BenchResult(
        id=f"2026010{number // 10}T0000{number:02}Z-{name}-{number:06x}",
        name=name,
        result="OK",
        mode="cluster",
        backend="local",
        throughput_ratio=part.mean,
        measurements=(size,),
        provenance=made,
        total_start_time=f"2026-01-01T00:00:{number:02}+00:00",
        **nothing,
    )


def vars_of(value: object) -> dict[str, float]:
    return dict(vars(value))


def written(result: BenchResult, path: Path) -> Path:
    path.write_bytes(msgspec.json.encode(result))
    return path


def read_json(path: Path) -> dict[str, object]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def charts_of(page: str) -> list[dict[str, Any]]:
    """What the page's script draws."""
    return [json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', page)]
