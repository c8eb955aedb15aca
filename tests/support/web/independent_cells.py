"""Cells of the pages worked out from the files with plain Python: nothing of Paceline is used here.

MindInsight's and msadvisor's files count in ticks of 10 ns, in ms and in KB of 1,000 bytes; memory is in GiB.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOCAL = 0xFFFFFFFF
Place = tuple[int, int]
"""Rank and step."""


@dataclass
class Cells:
    """ms, bytes, FLOPs; by rank and step, or by rank."""

    steps: dict[Place, dict[str, float]] = field(default_factory=dict)
    communication: dict[Place, dict[str, float]] = field(default_factory=dict)
    links: dict[tuple[int, int, str], dict[int, tuple[float, float]]] = field(default_factory=lambda: defaultdict(dict))
    """(sender, receiver, transport) → step → bytes and ms."""
    calls: dict[Place, int] = field(default_factory=dict)
    """Collectives of MindInsight's tables, which stop at a limit."""
    memory: dict[int, dict[str, float]] = field(default_factory=dict)
    flops: dict[int, dict[str, float]] = field(default_factory=dict)

    def steady(self, rank: int) -> list[int]:
        """The first step warms up."""
        return sorted(step for one, step in self.steps if one == rank and step > 1)

    def of_communication(self, rank: int) -> list[int]:
        """Steady steps that were not cut; where there is none, all that are known, as MindInsight does (decision 173)."""
        known = {step: self.calls.get((rank, step), 1) for one, step in self.communication if one == rank}
        whole = [step for step in self.steady(rank) if known.get(step, 0) >= 0.9 * max(known.values(), default=1)]
        return whole or sorted(known)


def mindinsight(root: Path) -> Cells:
    """Trees of MindSpore r1.3 (host directories, rank table) and r1.5 (files of all ranks side by side)."""
    cells = Cells()
    for path in root.rglob("step_trace_raw_*_detail_time.csv"):
        _step_trace(cells, path, _rank(root, path, path.name.split("_")[3]))
    for path in root.rglob("hccl_raw_*.csv"):
        _hccl_raw(cells, path, _rank(root, path, path.stem.split("_")[2]))
    for path in root.rglob("memory_usage_summary_*.json"):
        text = json.loads(path.read_text())
        gib = {"peak": text["peak_mem"], "capacity": text["capacity"], "static": text["static_mem"]}
        cells.memory[_rank(root, path, path.stem.split("_")[3])] = {name: value * 2**30 for name, value in gib.items()}
    for path in root.rglob("flops_summary_*.json"):
        text = json.loads(path.read_text())
        cells.flops[_rank(root, path, path.stem.split("_")[2])] = {
            "flops": text["FLOPs"] * 1e6,
            "flops_per_s": text["FLOPS"] * 1e9,
            "utilisation": text["FLOPS_Utilization"] / 100,
        }
    return cells


def all_reduces_of_neighbours(root: Path, steps: set[int]) -> dict[tuple[int, int], dict[str, float]]:
    """Bytes and ms between ranks 2n and 2n + 1, as each of them recorded it of its all-reduces in these steps."""
    sums: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: {"bytes": 0.0, "time": 0.0})
    for path in root.rglob("hccl_raw_*.csv"):
        first = _rank(root, path, path.stem.split("_")[2]) // 2 * 2
        for row in _rows_of_steps(path):
            if int(row["step_num"]) not in steps:
                continue
            for operator, (_, _, _, ends) in json.loads(row["communication_operator_cost"]).items():
                for link, transports in ends.items():
                    src, dst = (first + int(end) for end in link.split("-"))
                    if "AllReduce" in operator and src != dst:
                        sums[src, dst]["bytes"] += transports["SDMA"][1] * 1000
                        sums[src, dst]["time"] += transports["SDMA"][0]
    return sums


def _rows_of_steps(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(1 << 30)
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row["step_num"].isdecimal()]


def msadvisor(root: Path) -> Cells:
    """A flat directory of hccl_info_R/OP/iterK.trace and step traces; the K-th execution of an operator is in step K."""
    cells = Cells()
    for path in root.glob("step_trace_raw_*_detail_time.csv"):
        _step_trace(cells, path, int(path.name.split("_")[3]))
    for path in root.glob("hccl_info_*/*/iter*.trace"):
        rank = int(path.parts[-3].split("_")[2])
        step = int(re.findall(r"\d+", path.name)[0])
        _hccl_trace(cells, json.loads(path.read_text())["traceEvents"], (rank, step))
    return cells


def _rank(root: Path, path: Path, suffix: str) -> int:
    """r1.3 names files by device: the rank is that of the device in the server's part of the rank table."""
    table = root / "hccl.json"
    if not table.exists():
        return int(suffix)
    host = path.parts[path.parts.index("cluster_profiler") + 1]
    addresses = dict(
        reversed(line.split()) for line in (root / "host_ips_mapping.txt").read_text().splitlines() if line
    )
    for server in json.loads(table.read_text())["server_list"]:
        if server["server_id"] == addresses[host]:
            return next(int(one["rank_id"]) for one in server["device"] if one["device_id"] == suffix)
    raise AssertionError(path)


def _step_trace(cells: Cells, path: Path, rank: int) -> None:
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["step_num"].isdecimal():
                cells.steps[rank, int(row["step_num"])] = {
                    "duration": int(row["total"]) / 1e5,
                    "data": int(row["iteration_interval"]) / 1e5,
                    "forward_backward": int(row["fp_and_bp"]) / 1e5,
                    "phase_tail": int(row["tail"]) / 1e5,
                }


def _hccl_raw(cells: Cells, path: Path, rank: int) -> None:
    for row in _rows_of_steps(path):
        step = int(row["step_num"])
        cells.communication[rank, step] = {
            "transit": float(row["communication_cost"]),
            "waiting": float(row["wait_cost"]),
        }
        cells.calls[rank, step] = len(json.loads(row["communication_operator_cost"]))
        for ends, transports in json.loads(row["link_info"]).items():
            src, dst = (int(end) for end in ends.split("-"))
            for transport, (time, kilobytes, *_) in transports.items():
                if src != dst:
                    _add(cells, (src, dst, transport), step, kilobytes * 1000, time)


def _hccl_trace(cells: Cells, events: list[dict[str, Any]], place: Place) -> None:
    streams: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:  # in the order they were issued: starts may differ by a fraction of a µs
        streams[event["tid"]].append(event)
    for stream in streams.values():
        for i, event in enumerate(stream):
            about = event["args"]
            ends = (about["src rank"], about["dst rank"])
            if (
                about["transport type"] == "SDMA"
                and about["task type"] in ("Memcpy", "Reduce Inline")
                and LOCAL not in ends
            ):
                _add(cells, (*ends, "SDMA"), place[1], about["size"], event["dur"] / 1e3)
            following = [one["args"]["task type"] for one in stream[i + 1 : i + 3]]
            if about["task type"] == "RDMASend" and following == ["RDMASend", "Notify Wait"]:
                time = sum(one["dur"] for one in stream[i : i + 3]) / 1e3
                _add(cells, (*ends, "RDMA"), place[1], about["size"], time)


def _add(cells: Cells, link: tuple[int, int, str], step: int, size: float, time: float) -> None:
    before = cells.links[link].get(step, (0.0, 0.0))
    cells.links[link][step] = (before[0] + size, before[1] + time)
