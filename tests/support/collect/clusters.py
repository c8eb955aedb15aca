"""Hosts with profiles, as training scripts leave them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paceline
from paceline.core.schema import TABLES
from paceline.simulate import ClusterSpec, simulate


def simulated(out: Path, layout: str, *, hosts: int = 2, devices: int = 2, steps: int = 2) -> Path:
    world = hosts * devices
    spec = ClusterSpec(
        hosts=hosts, devices=devices, dp=world, tp=1, pp=1, steps=steps, layers=2, micro_batches=1, seed=3
    )
    simulate(out, spec, ["slow-rank:1:1.4"], layout)
    return out


def spread(cluster: Path, hosts: list[Path], *, device_regex: str = "device", output: str = "data") -> Path:
    """Split a collected r1.3 tree: every device's files on its host. Returns the rank table."""
    for number, host in enumerate(hosts, 1):
        for path in (cluster / "cluster_profiler" / str(number) / "profiler").rglob("*"):
            if path.is_file():
                device = _device(path.name)
                place = host / f"{device_regex}{device}" / f"{output}1" / "profiler"
                target = place / path.relative_to(cluster / "cluster_profiler" / str(number) / "profiler")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    return next(cluster.glob("*.json"))


def add_raw_data(root: Path, size: int) -> None:
    """Raw data of the driver next to the results, of a given size."""
    chance = random.Random(9)
    names = (
        "PROF_000001_20260101000000000_ABC/device_0/data/hwts.data.join.0.slice_0",
        "PROF_000001_20260101000000000_ABC/device_0/data/HCCL.hcom.allReduce.0.slice_0",
        "PROF_000001_20260101000000000_ABC/host/data/aging.api_event.data.slice_0",
        "FRAMEWORK/torch.op_range",
        "FRAMEWORK/torch.op_range.slice_1",
        "PROF_000001_20260101000000000_ABC/device_0/sqlite/hwts.db",
    )
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size // len(names)))
    # Every real PROF directory has a small file with its device, which is read.
    (root / "PROF_000001_20260101000000000_ABC/device_0/info.json.0").write_text('{"devices": "0", "rank_id": 0}')


def tables_of(source: object, store: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every table, sorted, without their source paths."""
    result = {}
    with paceline.open(str(source), store=store) as run:
        for name in (*TABLES, "links"):
            relation = run.table(name)
            columns = ", ".join(f'"{column}"' for column in kept_columns(relation.columns))
            result[name] = sorted(relation.project(columns).fetchall(), key=repr)
    return result


def kept_columns(columns: Iterable[str]) -> list[str]:
    """Those that do not tell where rows were read from."""
    return [column for column in columns if column not in ("path", "note", "format")]


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def write_accounts(path: Path, hosts: dict[str, dict[str, object]]) -> Path:
    path.write_text(json.dumps({"rank_size": 16, "cluster": hosts}))
    path.chmod(0o600)
    return path


def _device(name: str) -> int:
    digits = [int(part) for part in name.replace(".", "_").split("_") if part.isdecimal()]
    return digits[0] if digits else 0
