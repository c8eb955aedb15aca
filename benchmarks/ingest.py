"""Reading a cluster profile: Paceline against `msprof-analyze cluster -m all`, same data, one run.

    python benchmarks/ingest.py [--ranks 16 64] [--databases 16] [--database-steps 200] [--trace-steps 240]

Text results, SQLite results of many ranks and of one rank that recorded long (300 MB; both also against a bare scan: SQLite
reads the same columns and returns nothing) and one torch trace of more than 100 MB (against HolisticTraceAnalysis).
Megabytes are those of the unpacked files.

Prints CPU seconds, wall, peak memory of both and the ratio, and checks that both give the same numbers. CPU seconds
are what counts: wall time on shared machines is noise.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

from kineto import ANALYSE, PACELINE, installed
from measure import Cost, measure
from peer import WORK, install_peer

LOAD_ALL = (
    "import sys, paceline; from paceline.run.run import TABLE_NAMES; paceline.open(sys.argv[1]).load(TABLE_NAMES)"
)

BARE_SCAN = """
import pathlib, sqlite3, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.db"):
    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        database.execute("SELECT " + ", ".join(f'max("{name}")' for name in columns) + f' FROM "{table}"').fetchall()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--detail", type=float, default=0.7, help="share of ranks with timeline and kernels")
    parser.add_argument("--databases", type=int, nargs="*", default=[16], help="ranks with SQLite results")
    parser.add_argument("--database-steps", type=int, default=200, help="steps of the large database; 0 leaves it out")
    parser.add_argument("--trace-steps", type=int, default=240, help="steps of the torch trace; 0 leaves it out")
    parser.add_argument("--skip-peer", action="store_true")
    options = parser.parse_args()
    peer = None if options.skip_peer else install_peer()
    print(f"{'ranks':>5} {'MB':>6} {'what':34} {'CPU s':>8} {'wall s':>8} {'peak MB':>8} {'ratio':>7}")
    for ranks in options.ranks:
        compare(ranks, round(ranks * options.detail), peer)
    for ranks in options.databases:
        compare_databases(ranks, simulate(ranks, ranks, layout="ascend-db"), peer)
    if options.database_steps:
        compare_databases(1, simulate_alone("ascend-db", options.database_steps), None)
    if options.trace_steps:
        compare_trace(options.trace_steps, peer=not options.skip_peer)


def compare_databases(ranks: int, data: Path, peer: Path | None) -> None:
    size = total_mb(data)
    everything = load_all(data)
    line(ranks, size, f"SQLite, all tables ({size / everything.cpu:,.0f} MB per CPU s)", everything)
    bare = measure([sys.executable, "-c", BARE_SCAN, str(data)])
    line(ranks, size, "bare scan of the same databases", bare, ratio=everything.cpu / bare.cpu)
    if peer:
        output = WORK / f"peer-db-{ranks}"
        shutil.rmtree(output, ignore_errors=True)
        command = [str(peer), "cluster", "-m", "all", "-d", str(data), "-o", str(output), "--force"]
        theirs = measure(command, log=WORK / f"peer-db-{ranks}.log")
        line(ranks, size, "msprof-analyze cluster -m all, SQLite", theirs, ratio=theirs.cpu / everything.cpu)


def compare_trace(steps: int, *, peer: bool) -> None:
    data = simulate_alone("kineto", steps)
    size = total_mb(data)
    quick = measure([PACELINE, "breakdown", str(data)], log=WORK / "trace-breakdown.log")
    line(1, size, f"torch, breakdown ({size / quick.cpu:,.0f} MB per CPU s)", quick)
    everything = load_all(data)
    line(1, size, f"torch, all tables ({size / everything.cpu:,.0f} MB per CPU s)", everything)
    if peer:
        theirs = measure(
            [str(installed("HolisticTraceAnalysis")), "-c", ANALYSE, str(data)], log=WORK / "trace-hta.log"
        )
        line(1, size, "HolisticTraceAnalysis", theirs, ratio=theirs.cpu / quick.cpu)


def simulate_alone(layout: str, steps: int) -> Path:
    """One rank that recorded long."""
    target = WORK / f"alone-{layout}-{steps}"
    if not (target / ".paceline-truth.json").exists():
        shutil.rmtree(target, ignore_errors=True)
        shape = {
            "hosts": 1,
            "devices": 1,
            "tp": 1,
            "pp": 1,
            "layers": 32,
            "micro-batches": 8,
            "seed": 3,
            "steps": steps,
        }
        options = [text for name, value in shape.items() for text in (f"--{name}", str(value))]
        subprocess.run([PACELINE, "simulate", str(target), "--layout", layout, *options], check=True)
    return target


def load_all(data: Path) -> Cost:
    shutil.rmtree(WORK / "cache", ignore_errors=True)
    return measure([sys.executable, "-c", LOAD_ALL, str(data)], env={"PACELINE_CACHE": str(WORK / "cache")})


def total_mb(data: Path) -> float:
    return sum(unpacked_size(path) for path in data.rglob("*") if path.is_file()) / 1e6


def unpacked_size(path: Path) -> int:
    if path.suffix != ".gz":
        return path.stat().st_size
    with path.open("rb") as file:  # a gzip file ends with it
        file.seek(-4, 2)
        return int.from_bytes(file.read(4), "little")


def compare(ranks: int, detail_ranks: int, peer: Path | None) -> None:
    data = simulate(ranks, detail_ranks)
    size = total_mb(data)
    shutil.rmtree(WORK / "cache", ignore_errors=True)
    paceline, environment = str(Path(sys.executable).parent / "paceline"), {"PACELINE_CACHE": str(WORK / "cache")}
    first = measure([paceline, "show", str(data)], env=environment, log=WORK / f"show-{ranks}.log")
    line(ranks, size, "paceline show, first", first)
    line(ranks, size, "paceline show, again", measure([paceline, "show", str(data)], env=environment))
    everything = load_all(data)
    line(ranks, size, f"all tables ({size / everything.cpu:,.0f} MB per CPU s)", everything)
    bare = measure(
        [
            sys.executable,
            "-c",
            "import json,sys,pathlib\nfor p in pathlib.Path(sys.argv[1]).rglob("
            "'communication*.json'): json.loads(p.read_text())",
            str(data),
        ]
    )
    line(ranks, size, "bare json.loads of communication*", bare)
    if peer:
        output = WORK / f"peer-{ranks}"
        shutil.rmtree(output, ignore_errors=True)
        command = [str(peer), "cluster", "-m", "all", "-d", str(data), "-o", str(output), "--force"]
        theirs = measure(command, log=WORK / f"peer-{ranks}.log")
        line(ranks, size, "msprof-analyze cluster -m all", theirs, ratio=theirs.cpu / first.cpu)
        check_same(data, output / "cluster_analysis_output")


def line(ranks: int, size: float, what: str, cost: Cost, *, ratio: float | None = None) -> None:
    shown = f"{ratio:6.1f}×" if ratio else ""
    failed = "" if cost.exit_code == 0 else f"  exit {cost.exit_code}"
    print(
        f"{ranks:5} {size:6.0f} {what:34} {cost.cpu:8.2f} {cost.wall:8.2f} {cost.peak_mb:8.0f} {shown:>7}{failed}",
        flush=True,
    )


def simulate(ranks: int, detail_ranks: int, *, layout: str = "ascend-text") -> Path:
    """≈1,000 collectives per rank in 2 steps, timelines for a few ranks: the shape of real cluster recordings."""
    target = WORK / f"data-{ranks}-{detail_ranks}{'' if layout == 'ascend-text' else f'-{layout}'}"
    if not (target / ".paceline-truth.json").exists():
        shutil.rmtree(target, ignore_errors=True)
        paceline = str(Path(sys.executable).parent / "paceline")
        subprocess.run(
            [
                paceline,
                "simulate",
                str(target),
                "--layout",
                layout,
                "--hosts",
                str(ranks // 8),
                "--tp",
                "2",
                "--pp",
                "2",
                "--steps",
                "2",
                "--layers",
                "16",
                "--micro-batches",
                "16",
                "--detail-ranks",
                str(detail_ranks),
                "--seed",
                "3",
            ],
            check=True,
        )
    return target


def check_same(data: Path, theirs: Path) -> None:
    """Steps and collectives of the peer's files against our tables; any difference ends the benchmark."""
    import paceline

    with paceline.open(data, store=WORK / "cache" / "check") as run:
        ours = {
            (rank, step): values
            for rank, step, *values in run.table("steps").project("rank, step, computing, exposed, free").fetchall()
        }
        with (theirs / "cluster_step_trace_time.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["Type"] == "rank"]
        for row in rows:
            expected = [float(row[name]) for name in ("Computing", "Communication(Not Overlapped)", "Free")]
            found = [value / 1000 for value in ours[int(row["Index"]), int(row["Step"])]]
            assert all(math.isclose(a, b, abs_tol=0.01) for a, b in zip(expected, found, strict=True)), (row, found)
        elapsed = run.sql('SELECT rank, step, "group", name, duration, bytes FROM collectives').fetchall()
        ours_elapsed = {(rank, f"step{step}", f"{name}@{group}"): time for rank, step, group, name, time, _ in elapsed}
    compared = 0
    for groups in json.loads((theirs / "cluster_communication.json").read_text()).values():
        for step, operations in groups.items():
            for name, by_rank in operations.items():
                for rank, info in by_rank.items():
                    key = (int(rank), step, name)
                    if key in ours_elapsed and not name.startswith("Total"):
                        assert math.isclose(
                            info["Communication Time Info"]["Elapse Time(ms)"] * 1e6, ours_elapsed[key], abs_tol=2
                        )
                        compared += 1
    print(f"      same numbers: {len(rows)} steps, {compared:,} of {len(ours_elapsed):,} collectives compared")


if __name__ == "__main__":
    main()
