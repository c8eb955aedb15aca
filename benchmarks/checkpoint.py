"""Resharding checkpoints: Paceline against MindSpore's own transform_checkpoints and `cp`, one run.

    make venv-mindspore && python benchmarks/checkpoint.py [--size 2048] [--large 10240] [--rounds 1]

2 GiB of float32 in 32 tensors, half cut by columns, half by rows: 4 → 2, 2 → 4 and 4 → 1 ranks, .ckpt to .ckpt, each
in a process of its own and called as a library (the command adds half a second to start), and `cp` of the same bytes
with a sync, because Paceline syncs what it writes. Then the same three at 10 GiB by Paceline alone. Results are compared
with MindSpore's byte for byte. Ends with exit code 1 when one of the targets is missed: 8 times less CPU than
MindSpore, peak memory within the budget (1 GiB) + 200 MiB, at most twice the time of `cp`.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import measure
from measure import Cost

HERE = Path(__file__).parent
WORK = HERE / "work" / "checkpoint"
PEER = HERE.parent / ".venv-mindspore" / "bin" / "python"
BUDGET = 1 << 30
MEMORY = BUDGET + (200 << 20)
LESS_CPU, LONGER_THAN_CP = 8.0, 2.0
CASES = ((4, 2), (2, 4), (4, 1))
TENSORS = 32
OURS = """
import sys
from paceline.checkpoint.transform import TransformRequest, transform
transform(TransformRequest(*(each or None for each in sys.argv[1:]), prefix="net_"))
"""
THEIRS = """
import sys
import mindspore
source, target, source_strategy, target_strategy = (each or None for each in sys.argv[1:])
mindspore.transform_checkpoints(source, target, "net_", source_strategy, target_strategy)
"""


@dataclass(frozen=True)
class Row:
    case: str
    ours: Cost
    copy: Cost
    theirs: Cost | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="MiB")
    parser.add_argument("--large", type=int, default=10240, help="MiB, by Paceline alone; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    os.environ["PACELINE_CACHE"] = str(WORK / "cache")
    if not PEER.exists():
        sys.exit(f"{PEER}: not there; make venv-mindspore installs it")
    rows = [
        row
        for size, peer in ((options.size, True), (options.large, False))
        if size
        for row in run(size, options.rounds, peer=peer)
    ]
    missed = report(rows)
    shutil.rmtree(WORK, ignore_errors=True)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def run(mib: int, rounds: int, *, peer: bool) -> list[Row]:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for ranks in (4, 2, 1):
        (WORK / f"s{ranks}.ckpt").write_bytes(strategy(ranks))
    sources = {4: write_source(mib)}
    rows = []
    for start, end in CASES:
        source = sources[start]
        target = WORK / f"ours-{start}-{end}"
        ours, copies, theirs = [], [], []
        for _ in range(rounds):
            shutil.rmtree(target, ignore_errors=True)
            settle()
            ours.append(spend([sys.executable, "-c", OURS, *places(source, target, start, end)]))
            copies.append(copy(source))
            if peer:
                theirs.append(measure_peer(source, start, end, target))
        if end == 2:
            sources[2] = target
        else:
            shutil.rmtree(target)
        case = f"{mib / 1024:g} GiB, {start} → {end}"
        rows.append(Row(case, middle(ours), middle(copies), middle(theirs) if theirs else None))
        print(f"measured {case}", file=sys.stderr)
    return rows


def measure_peer(source: Path, start: int, end: int, ours: Path) -> Cost:
    target = WORK / "theirs"
    shutil.rmtree(target, ignore_errors=True)
    settle()
    cost = spend([str(PEER), "-c", THEIRS, *places(source, target, start, end)])
    for rank in range(end):
        name = f"rank_{rank}/net_{rank}.ckpt"
        if not filecmp.cmp(ours / name, target / name, shallow=False):
            sys.exit(f"{name}: ours and MindSpore's differ")
    shutil.rmtree(target)
    return cost


def copy(source: Path) -> Cost:
    target = WORK / "copy"
    settle()
    cost = spend(["sh", "-c", f"cp -r '{source}' '{target}' && sync -f '{target}'"])
    shutil.rmtree(target)
    return cost


def spend(command: list[str]) -> Cost:
    cost = measure.measure(command, log=WORK / "log")
    if cost.exit_code:
        sys.exit((WORK / "log").read_text(errors="replace")[-2000:])
    return cost


def settle() -> None:
    """Nothing left to be written for somebody else."""
    os.sync()


def places(source: Path, target: Path, start: int, end: int) -> list[str]:
    strategies = [str(WORK / f"s{ranks}.ckpt") if ranks > 1 else "" for ranks in (start, end)]
    return [str(source), str(target), *strategies]


def middle(costs: list[Cost]) -> Cost:
    cpu, wall = median(cost.cpu for cost in costs), median(cost.wall for cost in costs)
    return Cost(cpu, wall, max(cost.peak_mb for cost in costs), 0)


def strategy(ranks: int) -> bytes:
    from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
    from paceline.checkpoint.strategy.tensor_layout import TensorLayout

    layouts = {name(i): TensorLayout((ranks,), ((), (0,)) if i % 2 else ((0,), ())) for i in range(TENSORS)}
    return encode_strategy(Strategy((layouts,)), merged=False, as_json=False)


def name(number: int) -> str:
    return f"layers.{number}.weight"


def write_source(mib: int) -> Path:
    """Four ranks; the contents repeat, which nothing here can make use of."""
    from paceline.core.protobuf import bytes_field, bytes_head, number_field

    side = (mib << 20) // 4 // TENSORS // 4096
    pool = os.urandom(64 << 20)
    for rank in range(4):
        folder = WORK / "source" / f"rank_{rank}"
        folder.mkdir(parents=True)
        with (folder / "net-1_1.ckpt").open("wb") as out:
            for number in range(TENSORS):
                shape = (side, 1024) if number % 2 else (side // 4, 4096)
                size = shape[0] * shape[1] * 4
                tensor = b"".join(number_field(1, extent) for extent in shape) + bytes_field(2, b"Float32")
                tensor += bytes_head(3, size)
                value = bytes_field(1, name(number).encode()) + bytes_head(2, len(tensor) + size) + tensor
                out.write(bytes_head(1, len(value) + size) + value)
                at = (rank * 7_919_431 + number * 104_729) % (16 << 20)
                for start in range(0, size, 32 << 20):
                    out.write(pool[at : at + min(32 << 20, size - start)])
    return WORK / "source"


def report(rows: list[Row]) -> list[str]:
    missed = []
    print(f"{'case':<18}{'':<11}{'CPU s':>8}{'elapsed s':>11}{'peak MB':>10}")
    for row in rows:
        for who, cost in (("paceline", row.ours), ("cp + sync", row.copy), ("MindSpore", row.theirs)):
            if cost is not None:
                print(f"{row.case:<18}{who:<11}{cost.cpu:>8.1f}{cost.wall:>11.1f}{cost.peak_mb:>10.0f}")
        slower = row.ours.wall / row.copy.wall
        told = f"{slower:.2f} × cp"
        if row.theirs is not None:
            less = row.theirs.cpu / row.ours.cpu
            told += f", {less:.1f} × less CPU"
            if less < LESS_CPU:
                missed.append(f"{row.case}: {less:.1f} × less CPU")
        if slower > LONGER_THAN_CP:
            missed.append(f"{row.case}: {slower:.2f} × cp")
        if row.ours.peak_mb > MEMORY / 1e6:
            missed.append(f"{row.case}: {row.ours.peak_mb:.0f} MB")
        print(f"{'':<18}{told}")
    return missed


if __name__ == "__main__":
    main()
