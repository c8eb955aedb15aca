"""How we grow: ranks of one shape, databases that blow up the peer's advisor, and ten thousand ranks end to end.

    python benchmarks/scale.py [--ranks 16 64 256 1024] [--databases 64 256] [--many 10240] [--peer-databases 16]

1. Clusters of one shape (about 2.7 MB a rank, a timeline of one rank per host): index and diagnose, from a cold store.
   CPU per rank must stay flat, 1,024 ranks below 4 GiB.
2. The SQLite layout: msprof-analyze's advisor joins all ranks' tasks and gives no report at 64 ranks; ours at 64 and 256
   must stay below 1.5 GiB. With --peer-databases the peer is run too, as far as it comes
   with 10 GiB.
3. Ten thousand ranks with few events each: index, diagnose, serve.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, measure
from peer import WORK, install_peer

PACELINE = str(Path(sys.executable).with_name("paceline"))
FAULT = "slow-rank:5:1.3"
GIB = 1024**3 / 1e6
PEER_LIMIT = 10 * 1024**3
"""Bytes each process of the peer may have: what it asks for grows with the cube of the ranks."""
FLAT = 1.3
"""A rank of the largest cluster may cost this many times what a rank costs where it is cheapest."""


@dataclass(frozen=True)
class Shape:
    layout: str = "ascend-text"
    layers: int = 16
    micro_batches: int = 16
    steps: int = 2
    detail: int = 8
    """One rank in so many has the heavy files."""


DATABASES = Shape(layout="ascend-db", layers=32, micro_batches=16, detail=1)
"""About 6 MB and 2,400 collectives a rank."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[16, 64, 256, 1024])
    parser.add_argument("--databases", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--peer-databases", type=int, nargs="*", default=[])
    parser.add_argument("--many", type=int, nargs="*", default=[10240])
    options = parser.parse_args()
    print(f"{'ranks':>6} {'MB':>6} {'what':40} {'CPU s':>8} {'ms/rank':>8} {'wall s':>8} {'peak MB':>8}")
    missed = grow(options.ranks) + databases(options.databases, options.peer_databases)
    for ranks in options.many:
        missed += end_to_end(ranks)
    for sentence in missed:
        print(f"missed: {sentence}")
    sys.exit(1 if missed else 0)


def grow(sizes: list[int]) -> list[str]:
    missed, per_rank = [], []
    for ranks in sizes:
        data = simulate(ranks, Shape())
        for command in ("index", "diagnose"):
            cost = ours(data, ranks, command)
            if cost.exit_code:
                missed.append(f"{command} of {ranks} ranks: exit {cost.exit_code}")
            if cost.peak_mb > 4 * GIB:
                missed.append(
                    f"{command} of {ranks} ranks took {cost.peak_mb:,.0f} MB, wanted less than {4 * GIB:,.0f}"
                )
            if command == "index":
                per_rank.append(cost.cpu / ranks)
        shutil.rmtree(data)  # gigabytes
    if per_rank and per_rank[-1] > FLAT * min(per_rank):
        cheapest = sizes[per_rank.index(min(per_rank))]
        missed.append(f"a rank costs {per_rank[-1] / min(per_rank):.2f} times as much in {sizes[-1]} as in {cheapest}")
    return missed


def databases(sizes: list[int], peer_sizes: list[int]) -> list[str]:
    missed = []
    for ranks in sizes:
        data = simulate(ranks, DATABASES)
        cost = ours(data, ranks, "diagnose")
        if cost.exit_code or cost.peak_mb > 1.5 * GIB:
            missed.append(f"{ranks} databases: exit {cost.exit_code}, {cost.peak_mb:,.0f} MB, wanted {1.5 * GIB:,.0f}")
        shutil.rmtree(data)
    for ranks in peer_sizes:
        data = simulate(ranks, DATABASES)
        output = WORK / "peer-databases"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        limit = ["prlimit", f"--as={PEER_LIMIT}"]
        command = [*limit, str(install_peer()), "advisor", "all", "-d", str(data), "-o", str(output), "--force"]
        line(ranks, data, "msprof-analyze advisor all, SQLite", measure(command, log=WORK / f"peer-db-{ranks}.log"))
        reports = list(output.rglob("*.html")) + list(output.rglob("*.xlsx"))
        print(f"{'':14}its reports: {', '.join(sorted(path.name for path in reports)) or 'none'}")
        shutil.rmtree(data)
    return missed


def end_to_end(ranks: int) -> list[str]:
    """Index, diagnose, serve: a recording of two steps with few collectives and two timelines."""
    data = simulate(ranks, Shape(layers=2, micro_batches=2, detail=ranks // 2))
    missed = []
    for command in ("index", "diagnose"):
        cost = ours(data, ranks, command, keep=True)
        if cost.exit_code:
            missed.append(f"{command} of {ranks} ranks: exit {cost.exit_code}")
    seconds = first_answer(data)
    print(f"{ranks:6} {'':6} {'served: overview after indexing':40} {'':8} {'':8} {seconds:8.2f}")
    if seconds > 3:
        missed.append(f"the overview of {ranks} ranks took {seconds:.1f} s, wanted 3")
    shutil.rmtree(data)
    shutil.rmtree(WORK / "scale-cache", ignore_errors=True)
    return missed


def first_answer(data: Path) -> float:
    """Seconds from asking for a run's overview to having it, in a server that has indexed it."""
    port = 18_231
    server = subprocess.Popen(
        [PACELINE, "serve", str(data.parent), "--port", str(port)],
        env={**os.environ, "PACELINE_CACHE": str(WORK / "scale-cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        base = f"http://127.0.0.1:{port}/api/v1"
        while (listed := ask(f"{base}/runs"))["scanning"]:
            time.sleep(0.5)
        run = next(run for run in listed["runs"] if run["name"] == data.name)
        ask(f"{base}/runs/{run['id']}/open", method="POST")
        while ask(f"{base}/runs/{run['id']}")["state"]["phase"] not in ("ready", "failed"):
            time.sleep(0.5)
        began = time.monotonic()
        ask(f"{base}/runs/{run['id']}/overview")
        return time.monotonic() - began
    finally:
        server.terminate()
        server.wait()


def ask(url: str, method: str = "GET") -> dict:
    for _ in range(600):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)  # not listening yet
    raise TimeoutError(url)


def ours(data: Path, ranks: int, command: str, *, keep: bool = False) -> Cost:
    """From a cold store, unless what an earlier command kept is wanted."""
    cache = WORK / "scale-cache"
    if not keep:
        shutil.rmtree(cache, ignore_errors=True)
    more = ["--out", str(WORK / "report")] if command == "diagnose" else []
    log = WORK / f"scale-{command}-{ranks}.log"
    cost = measure([PACELINE, command, str(data), *more], env={"PACELINE_CACHE": str(cache)}, log=log)
    line(ranks, data, f"paceline {command}, {data.name.split('-', 2)[2]}", cost)
    if not keep:
        shutil.rmtree(cache, ignore_errors=True)
    return cost


def simulate(ranks: int, shape: Shape) -> Path:
    target = WORK / "scale" / f"scale-{ranks}-{shape.layout}"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            PACELINE,
            "simulate",
            str(target),
            "--hosts",
            str(ranks // 8),
            "--tp",
            "2",
            "--pp",
            "2",
            "--layout",
            shape.layout,
            "--steps",
            str(shape.steps),
            "--layers",
            str(shape.layers),
            "--micro-batches",
            str(shape.micro_batches),
            "--detail-ranks",
            str(ranks // shape.detail),
            "--fault",
            FAULT,
            "--seed",
            "3",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return target


def line(ranks: int, data: Path, what: str, cost: Cost) -> None:
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / 1e6
    failed = "" if cost.exit_code == 0 else f"  exit {cost.exit_code}"
    print(
        f"{ranks:6} {size:6.0f} {what:40} {cost.cpu:8.2f} {1000 * cost.cpu / ranks:8.1f} {cost.wall:8.2f}"
        f" {cost.peak_mb:8.0f}{failed}",
        flush=True,
    )


if __name__ == "__main__":
    main()
