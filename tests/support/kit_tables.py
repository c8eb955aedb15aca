"""Cases of the independent kit in ../shared/kit, and what a perfect reader reads of them (its `--tables`)."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from paceline.run.run import Run

KIT = Path(os.environ.get("PACELINE_KIT", Path(__file__).parents[3] / "shared" / "kit"))

needs_kit = pytest.mark.skipif(
    not KIT.is_dir(), reason=f"the independent kit was not found at {KIT} (set PACELINE_KIT)"
)

OPS = {"allReduce": "all_reduce", "allGather": "all_gather", "reduceScatter": "reduce_scatter"}
FEW_BYTES = 1e6
"""Smaller transfers show latency."""


def build_cases(target: Path, names: list[str]) -> None:
    command = [sys.executable, str(KIT / "cases.py"), str(target), "--tables", "--only", *names]
    subprocess.run(command, check=True, capture_output=True, cwd=target)


def expected_tables(target: Path, name: str) -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(gzip.decompress((target / "tables" / f"{name}.json.gz").read_bytes()))
    return tables


def group_kinds(run: Run) -> dict[tuple[int, ...], str]:
    rows = run.sql('SELECT list(rank ORDER BY index), any_value(kind) FROM groups GROUP BY "group"').fetchall()
    return {tuple(ranks): kind for ranks, kind in rows}


def steps_that_differ(run: Run, tables: dict[str, Any], *, share: float = 0.001) -> list[tuple[int, int]]:
    """(rank, step) whose duration or input wait is off by more than this share of the step; the first step is a warm-up."""
    read = {
        (rank, step): (duration, wait)
        for rank, step, duration, wait in run.sql(
            "SELECT rank, step, duration, coalesce(data_wait, preparing) FROM steps"
        ).fetchall()
    }
    wrong = []
    for row in tables["steps"]:
        if row["warmup"]:
            continue
        duration, wait = read.get((row["rank"], row["step"]), (None, None))
        most = share * row["duration"]
        if (
            duration is None
            or abs(duration / 1e3 - row["duration"]) > most
            or abs(wait / 1e3 - row["data_wait"]) > most
        ):
            wrong.append((row["rank"], row["step"]))
    return wrong


def collectives_torn_apart(run: Run, tables: dict[str, Any]) -> int:
    """Collectives of the run that are not joined as the simulator ran them; both in each rank's order of starts."""
    read = defaultdict(list)
    for rank, step, op, group, sequence in run.sql(
        'SELECT rank, step, op, "group", sequence FROM collectives ORDER BY rank, step, start'
    ).fetchall():
        read[rank, step].append((op, group, sequence))
    ran = defaultdict(list)
    for row in sorted(tables["collectives"], key=lambda row: row["start"]):
        ran[row["rank"], row["step"]].append((row["op"], row["group"], row["sequence"]))
    pairs = set()
    for place, here in read.items():
        assert len(here) == len(ran[place]), f"rank, step {place}: {len(here)} collectives for {len(ran[place])}"
        pairs |= {(mine, true) for mine, true in zip(here, ran[place], strict=True) if true[0] in OPS}
    once = [Counter(side) for side in zip(*pairs, strict=True)]
    return sum(count - 1 for side in once for count in side.values())


def links_that_differ(run: Run, tables: dict[str, Any], *, share: float = 0.03) -> list[tuple[object, ...]]:
    """(step, src, dst) of links that are missing or whose bandwidth is off by more than this share."""
    read = {
        (step, src, dst): size / time
        for step, src, dst, size, time in run.sql(
            "SELECT step, src, dst, sum(bytes), sum(duration) FROM transfers WHERE scope = 'global' AND src <> dst GROUP BY ALL"
        ).fetchall()
        if time
    }
    steps = {step for step, _, _ in read}
    return [
        (row["step"], row["src"], row["dst"])
        for row in tables["links"]
        if row["step"] in steps
        and row["bytes"] > FEW_BYTES
        and not abs(read.get((row["step"], row["src"], row["dst"]), 0.0) / (row["bytes"] / row["time"] / 1e3) - 1)
        <= share
    ]
