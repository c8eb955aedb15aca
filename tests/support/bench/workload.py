"""A workload without a framework: writes the result files of a training whose speed is an argument."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path


def wait_in_run(gate: Path, which: int) -> None:
    """Counts the runs in a directory; this one waits for the file `open` there."""
    number = 1 + sum(path.name.startswith("run") for path in gate.iterdir())
    (gate / f"run{number}").touch()
    until = time.monotonic() + 1200
    while number == which and not (gate / "open").exists():
        if time.monotonic() > until:
            sys.exit("nobody opened the gate")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_url", type=Path, required=True)
    parser.add_argument("--speed", type=float, default=100.0)
    parser.add_argument("--slow_rank", type=int, default=-1)
    parser.add_argument("--fail_from", type=int, default=1000)
    parser.add_argument("--forget", default="")
    parser.add_argument("--gate", type=Path)
    parser.add_argument("--gated_run", type=int, default=3)
    asked, _ = parser.parse_known_args()
    # ModelArts names ranks in Ascend's way.
    rank = int(os.environ.get("RANK", os.environ.get("RANK_ID", "0")))
    ranks = int(os.environ.get("WORLD_SIZE", os.environ.get("RANK_SIZE", "1")))
    if asked.gate is not None and rank == 0:
        wait_in_run(asked.gate, asked.gated_run)
    node = os.environ.get("VC_TASK_INDEX", "0")
    if ranks >= asked.fail_from and rank == ranks - 1:
        print("out of memory: this rank needs 80 GB", file=sys.stderr)
        sys.exit(7)
    alone = bool(os.environ.get("SINGLESERVER_MODE"))
    place = asked.train_url / node if alone else asked.train_url
    place.mkdir(parents=True, exist_ok=True)
    speed = asked.speed * (0.5 if rank == asked.slow_rank else 1.0) * (1 + int(node) * 0.01)
    numbers = {f"throughput_{rank}.json": speed}
    if rank == 0:
        times = {
            "dataload_start_time": "2026-11-17T02:00:00Z",
            "dataload_end_time": "2026-11-17T02:00:04+00:00",
            "odd": "x",
        }
        (asked.train_url / "phases.json").write_text(json.dumps(times))
        numbers |= {"ranksize.json": ranks, f"../accuracy_{node}.json" if alone else "accuracy.json": 0.5}
    for name, value in numbers.items():
        if name != asked.forget:
            (place / name).write_text(str(value))


if __name__ == "__main__":
    main()
