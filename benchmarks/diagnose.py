"""Full diagnosis: `paceline diagnose` against `msprof-analyze cluster -m all` + `advisor all`, same data, one run.

    python benchmarks/diagnose.py [--ranks 16] [--layers 16 32] [--alone 64 128 256] [--skip-peer]

Every rank of the compared cluster has its timeline and kernels, in two sizes of model; the peer's advisor opens only
some of the timelines. Then larger
clusters with us alone: memory must stay below 2 GiB, and CPU and memory must grow no faster than the number of ranks.
CPU seconds are what counts: wall time on shared machines is noise, and the advisor runs itself at nice 19.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from measure import Cost, measure
from peer import WORK, install_peer

PACELINE = str(Path(sys.executable).with_name("paceline"))
LIMIT_MB = 2 * 1024**3 / 1e6
LEAST_RATIO = 10.0
LINEAR = 1.25
"""Twice the ranks may cost at most twice as much, give or take this factor."""
FAULT = "slow-rank:5:1.15"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16, help="ranks of the cluster both examine")
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 32], help="layers of the model both examine")
    parser.add_argument("--alone", type=int, nargs="*", default=[64, 128, 256], help="ranks of clusters for us alone")
    parser.add_argument("--skip-peer", action="store_true")
    options = parser.parse_args()
    print(f"{'ranks':>5} {'MB':>6} {'what':34} {'CPU s':>8} {'wall s':>8} {'peak MB':>8} {'ratio':>7}")
    missed: list[str] = []
    for layers in () if options.skip_peer else options.layers:
        missed += compare(options.ranks, layers, install_peer())
    missed += grow(options.alone)
    for sentence in missed:
        print(f"missed: {sentence}")
    sys.exit(1 if missed else 0)


def compare(ranks: int, layers: int, peer: Path) -> list[str]:
    data = simulate(ranks, detail_ranks=ranks, layers=layers)
    ours = diagnose(data, ranks)
    output = WORK / f"peer-diagnose-{ranks}"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    where = ["-d", str(data), "-o", str(output), "--force"]
    cluster = measure([str(peer), "cluster", "-m", "all", *where], log=WORK / f"peer-cluster-{ranks}.log")
    line(ranks, data, "msprof-analyze cluster -m all", cluster)
    advisor = measure(
        ["env", "-C", str(output), str(peer), "advisor", "all", *where], log=WORK / f"peer-advisor-{ranks}.log"
    )
    line(ranks, data, "msprof-analyze advisor all", advisor)
    ratio = (cluster.cpu + advisor.cpu) / ours.cpu
    both = Cost(cluster.cpu + advisor.cpu, cluster.wall + advisor.wall, max(cluster.peak_mb, advisor.peak_mb), 0)
    line(ranks, data, "both, against paceline diagnose", both, ratio=ratio)
    return [] if ratio >= LEAST_RATIO else [f"{ratio:.1f} times less CPU, wanted {LEAST_RATIO:.0f}"]


def grow(sizes: list[int]) -> list[str]:
    """Larger and larger clusters; the shape of real recordings: a timeline of one rank per host."""
    missed, costs = [], []
    for ranks in sizes:
        data = simulate(ranks, detail_ranks=ranks // 8)
        costs.append((ranks, diagnose(data, ranks)))
        shutil.rmtree(data)  # gigabytes
    for ranks, cost in costs:
        if cost.peak_mb >= LIMIT_MB:
            missed.append(f"{ranks} ranks took {cost.peak_mb:,.0f} MB, the limit is {LIMIT_MB:,.0f}")
    for (fewer, small), (more, large) in pairwise(costs):
        for what, before, after in (("CPU", small.cpu, large.cpu), ("memory", small.peak_mb, large.peak_mb)):
            if after / before > LINEAR * more / fewer:
                missed.append(f"{what} grew {after / before:.1f} times from {fewer} to {more} ranks")
    return missed


def diagnose(data: Path, ranks: int) -> Cost:
    """Ours, from a cold store."""
    store = WORK / "diagnose-store"
    shutil.rmtree(store, ignore_errors=True)
    log = WORK / f"diagnose-{ranks}.log"
    cost = measure([PACELINE, "diagnose", str(data), "--store", str(store), "--out", str(WORK / "report")], log=log)
    line(ranks, data, "paceline diagnose, cold", cost)
    if cost.exit_code:
        sys.exit(f"paceline diagnose failed, see {log}")
    shutil.rmtree(store, ignore_errors=True)
    return cost


def simulate(ranks: int, *, detail_ranks: int, layers: int = 16) -> Path:
    """2 steps with as many micro-batches as layers, one rank 15 % slower; 16 layers: ≈1,000 collectives per rank."""
    target = WORK / f"diagnose-data-{ranks}-{detail_ranks}-{layers}"
    if not (target / ".paceline-truth.json").exists():
        shutil.rmtree(target, ignore_errors=True)
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
                "--steps",
                "2",
                "--layers",
                str(layers),
                "--micro-batches",
                str(layers),
                "--detail-ranks",
                str(detail_ranks),
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


def line(ranks: int, data: Path, what: str, cost: Cost, *, ratio: float | None = None) -> None:
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / 1e6
    shown = f"{ratio:6.1f}×" if ratio else ""
    failed = "" if cost.exit_code == 0 else f"  exit {cost.exit_code}"
    print(
        f"{ranks:5} {size:6.0f} {what:34} {cost.cpu:8.2f} {cost.wall:8.2f} {cost.peak_mb:8.0f} {shown:>7}{failed}",
        flush=True,
    )


if __name__ == "__main__":
    main()
