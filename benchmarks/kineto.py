"""torch traces: `paceline breakdown` against HolisticTraceAnalysis 0.5 and traceinsight 0.6, on HTA's own test traces.

    python benchmarks/kineto.py [--ranks 8]

All three break steps down and look for stragglers: that is the job that is judged. `paceline diagnose`, which also indexes
every table, replays, explains and writes a report, is measured beside it. The traces are those of ../shared/fixtures/kineto
(HTA's tests/data); the larger cluster is one of them copied as ranks 0 to 7, as HTA was measured.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from measure import Cost, measure
from peer import WORK

PACELINE = str(Path(sys.executable).with_name("paceline"))
FIXTURES = Path(os.environ.get("PACELINE_FIXTURES") or Path(__file__).parents[2] / "shared" / "fixtures") / "kineto"
PEERS = {"HolisticTraceAnalysis": "HolisticTraceAnalysis==0.5.0", "traceinsight": "traceinsight==0.6.1"}
LEAST_CPU, MOST_MEMORY = 5.0, 0.5

# Breakdown and straggler; a straggler that it cannot look for (it raises on single ranks) is said and not held against it.
ANALYSE = """
import importlib, sys
for name in ("traceinsight", "hta"):
    try:
        TraceAnalysis = importlib.import_module(name + ".trace_analysis").TraceAnalysis
        break
    except ImportError:
        continue
analyzer = TraceAnalysis(trace_dir=sys.argv[1])
print(analyzer.get_temporal_breakdown(visualize=False))
print(analyzer.get_comm_comp_overlap(visualize=False))
try:
    print("stragglers", analyzer.get_potential_stragglers())
except Exception as error:
    print("no straggler analysis:", type(error).__name__, error)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8, help="copies of one trace as so many ranks")
    options = parser.parse_args()
    if not FIXTURES.is_dir():
        sys.exit(f"{FIXTURES}: HTA's test traces are not here; set PACELINE_FIXTURES")
    print(f"{'MB':>6} {'what':46} {'CPU s':>8} {'wall s':>8} {'peak MB':>8} {'CPU':>7} {'memory':>7}")
    missed = []
    for data in (FIXTURES / "hta-2-ranks", FIXTURES / "ns_resolution_trace", copies(options.ranks)):
        missed += compare(data)
    for sentence in missed:
        print(f"missed: {sentence}")
    sys.exit(1 if missed else 0)


def compare(data: Path) -> list[str]:
    missed = []
    ours = measure([PACELINE, "breakdown", str(data)], log=WORK / f"kineto-breakdown-{data.name}.log")
    line(data, f"paceline breakdown, {data.name}", ours)
    store = WORK / "kineto-store"
    shutil.rmtree(store, ignore_errors=True)
    command = [PACELINE, "diagnose", str(data), "--store", str(store), "--out", str(WORK / "report")]
    whole = measure(command, log=WORK / f"kineto-{data.name}.log")
    line(data, f"paceline diagnose, {data.name}", whole)
    if ours.exit_code or whole.exit_code:
        missed.append(f"paceline breakdown or diagnose of {data.name} failed")
    for name in PEERS:
        log = WORK / f"{name}-{data.name}.log"
        theirs = measure([str(installed(name)), "-c", ANALYSE, str(data)], log=log)
        cpu, memory = theirs.cpu / ours.cpu, ours.peak_mb / theirs.peak_mb
        line(data, f"{name}, {data.name}", theirs, cpu=cpu, memory=memory)
        print(
            f"{'':7}{'against paceline diagnose':46} {'':26} {theirs.cpu / whole.cpu:6.1f}× {whole.peak_mb / theirs.peak_mb:7.2f}"
        )
        if name == "HolisticTraceAnalysis" and (cpu < LEAST_CPU or memory > MOST_MEMORY):
            missed.append(f"{data.name}: {cpu:.1f} times less CPU, {memory:.2f} of the memory, wanted 5 and 0.5")
    return missed


def copies(ranks: int) -> Path:
    """One real trace as several ranks."""
    target = WORK / f"kineto-{ranks}-copies"
    if not target.exists():
        (original,) = (FIXTURES / "ns_resolution_trace").glob("*.gz")
        text = gzip.decompress(original.read_bytes())
        building = target.with_name(target.name + ".tmp")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        for rank in range(ranks):
            changed = text.replace(b'"rank": 0, "world_size": 1,', b'"rank": %d, "world_size": %d,' % (rank, ranks), 1)
            (building / f"rank-{rank}.pt.trace.json.gz").write_bytes(gzip.compress(changed, compresslevel=6))
        building.rename(target)
    return target


def installed(name: str) -> Path:
    target = WORK / f"{name}-venv"
    if not (target / ".done").exists():
        venv.create(target, with_pip=True, clear=True)
        # Its own requirements leave pandas open; it was measured with what pip takes today.
        subprocess.run([str(target / "bin" / "pip"), "install", "--quiet", PEERS[name]], check=True)
        (target / ".done").touch()
    return target / "bin" / "python"


def line(data: Path, what: str, cost: Cost, *, cpu: float | None = None, memory: float | None = None) -> None:
    size = sum(path.stat().st_size for path in data.iterdir()) / 1e6
    ratios = f"{cpu:6.1f}× {memory:7.2f}" if cpu and memory else ""
    failed = "" if cost.exit_code == 0 else f"  exit {cost.exit_code}"
    print(f"{size:6.1f} {what:46} {cost.cpu:8.2f} {cost.wall:8.2f} {cost.peak_mb:8.0f} {ratios}{failed}", flush=True)


if __name__ == "__main__":
    main()
