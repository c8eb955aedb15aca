"""The recordings benchmarks/web.py looks at: simulated ones, and exports with more ranks, links and events than anybody
would simulate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
from peer import WORK

from paceline import simulate

DATA = WORK / "web-data"
NAMES = ("ascend-1024", "mi-1024", "mi-4", "cluster-10240", "matrix-1024", "timeline-5m")

_LARGE = simulate.ClusterSpec(
    hosts=128, devices=8, dp=32, tp=8, pp=4, steps=3, layers=4, micro_batches=4, detail_ranks=16, seed=5
)
_SMALL = simulate.ClusterSpec(hosts=1, devices=4, dp=2, tp=1, pp=2, steps=5, layers=4, micro_batches=4)


def make_data() -> None:
    _simulated("ascend-1024", _LARGE, "slow-rank:517:1.4", "ascend-text")
    _simulated("mi-1024", replace(_LARGE, detail_ranks=None), "slow-rank:517:1.4", "mindinsight")
    _simulated("mi-4", _SMALL, "slow-rank:2:1.3", "mindinsight")
    _once("cluster-10240", lambda path: _tables(path, _CLUSTER))
    _once("matrix-1024", lambda path: _tables(path, _MATRIX))
    _once("timeline-5m", lambda path: _tables(path, _TIMELINE))


def _simulated(name: str, spec: simulate.ClusterSpec, fault: str, layout: str) -> None:
    _once(name, lambda path: simulate.simulate(path, spec, [fault], layout))


def _once(name: str, make: Callable[[Path], object]) -> None:
    """Whole or not at all: what a killed run left is made anew."""
    if (DATA / name).exists():
        return
    making = DATA.with_name("web-data-making") / name
    shutil.rmtree(making, ignore_errors=True)
    making.parent.mkdir(parents=True, exist_ok=True)
    make(making)
    DATA.mkdir(parents=True, exist_ok=True)
    making.rename(DATA / name)


def _tables(path: Path, selects: dict[str, str]) -> None:
    """A directory as `paceline export --to parquet` writes it."""
    path.mkdir(parents=True)
    for table, select in selects.items():
        duckdb.execute(f"COPY ({select}) TO '{path / table}.parquet' (FORMAT parquet, COMPRESSION zstd)")
    (path / "paceline.json").write_text(json.dumps({"schema": "paceline.tables/1"}))


def _ranks(count: int) -> str:
    return f"SELECT range AS rank, 'host-' || (range // 8) AS host, range % 8 AS device FROM range({count})"


# One slow rank; tensor groups of a host each meet four times a step, data groups over 32 hosts once.
_CLUSTER = {
    "ranks": _ranks(10240),
    "groups": """
        SELECT 'tp-' || (range // 8) AS "group", 'tp' AS kind, range % 8 AS "index", range AS rank FROM range(10240)
        UNION ALL
        SELECT 'dp-' || (range // 256) || '-' || (range % 8), 'dp', range % 256 // 8, range
        FROM range(10240)
    """,
    "steps": """
        SELECT rank.range AS rank, step.range + 1 AS step, step.range * 100000000 AS start,
               (step.range + 1) * 100000000 AS end, 100000000 AS duration,
               if(rank.range = 5170, 80000000, 60000000 + (hash(rank.range) % 1000000)::BIGINT) AS computing,
               if(rank.range = 5170, 10000000, 30000000) AS exposed, 10000000 AS free
        FROM range(10240) AS rank, range(3) AS step
    """,
    "collectives": """
        SELECT rank.range AS rank, step.range + 1 AS step,
               if(call.range = 4, 'dp-' || (rank.range // 256) || '-' || (rank.range % 8), 'tp-' || (rank.range // 8)) AS "group",
               'all_reduce' AS op, step.range * 5 + call.range AS sequence, 'hcom_allReduce__' || call.range AS name,
               step.range * 100000000 + call.range * 18000000 + 10000000
                   + if(rank.range = 5170, 4000000, (hash(rank.range) % 300000)::BIGINT) AS start,
               if(rank.range = 5170, 2000000, 6000000) AS duration, 2000000 AS transit,
               if(rank.range = 5170, 0, 4000000) AS wait, if(rank.range = 5170, 0, 3000000) AS sync, 16000000 AS bytes
        FROM range(10240) AS rank, range(3) AS step, range(5) AS call
    """,
}

_MATRIX = {
    "ranks": _ranks(1024),
    "steps": "SELECT range AS rank, 1 AS step, 100000000 AS duration, 60000000 AS computing FROM range(1024)",
    "transfers": """
        SELECT a.range AS rank, 1 AS step, a.range AS src, b.range AS dst, 'global' AS scope,
               if(a.range // 8 = b.range // 8, 'HCCS', 'RDMA') AS transport, 1000000 AS bytes,
               50000 + (hash(a.range * 1024 + b.range) % 50000)::BIGINT AS duration
        FROM range(1024) AS a, range(1024) AS b WHERE a.range <> b.range
    """,
}

_TIMELINE = {
    "ranks": _ranks(64),
    "steps": """
        SELECT rank.range AS rank, step.range + 1 AS step, step.range * 1000000000 AS start,
               (step.range + 1) * 1000000000 AS end, 1000000000 AS duration, 900000000 AS computing
        FROM range(64) AS rank, range(10) AS step
    """,
    "events": """
        SELECT event.range % 64 AS rank, 'Ascend Hardware/Stream ' || (event.range // 64 % 4) AS track,
               'kernel_' || (hash(event.range) % 300) AS name, 'kernel' AS category,
               (event.range // 256) * 500000 + (event.range // 64 % 4) * 100 AS start,
               100000 + (hash(event.range) % 390000)::BIGINT AS duration
        FROM range(5000000) AS event
    """,
}
