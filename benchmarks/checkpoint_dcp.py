"""torch DCP: Paceline against torch's own dcp_to_torch_save: CPU, elapsed time and peak memory, one run.

    python benchmarks/checkpoint_dcp.py [--size 10240]

A DCP checkpoint that torch writes, of 80 float32 tensors: to Hugging Face's files, to the slices of four ranks as DCP, and by
torch to one .pt file. Both of ours must read back equal. Ends with exit code 1 if Paceline needs 200 MB or more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import measure
from measure import Cost

WORK = Path(__file__).parent / "work" / "checkpoint-dcp"
MOST_MB = 200
TENSORS = 80
SOURCE = """
import sys, torch, torch.distributed.checkpoint as dcp
where, mib = sys.argv[1], int(sys.argv[2])
rows = (mib << 20) // 4 // {tensors} // 4096 // 4 * 4
pool = torch.randn(2 * rows, 4096)
dcp.save({{f"layers.{{n}}.weight": pool[n % rows : n % rows + rows] for n in range({tensors})}}, checkpoint_id=where)
"""
OURS = """
import sys
from paceline.checkpoint.transform import TransformRequest, transform
transform(TransformRequest(sys.argv[1], sys.argv[2], target_strategy=sys.argv[4] or None, format=sys.argv[3]))
"""
THEIRS = """
import sys
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10240, help="MiB")
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    os.environ["PACELINE_CACHE"] = str(WORK / "cache")
    spend([sys.executable, "-c", SOURCE.format(tensors=TENSORS), str(WORK / "source"), str(options.size)])
    (WORK / "tp4.ckpt").write_bytes(strategy(4))
    costs = []
    for kind, ranks in (("huggingface", 1), ("dcp", 4)):
        target, layout = WORK / kind, str(WORK / "tp4.ckpt") if ranks > 1 else ""
        os.sync()
        costs.append((kind, spend([sys.executable, "-c", OURS, str(WORK / "source"), str(target), kind, layout])))
        spend([sys.executable, "-m", "paceline", "checkpoint", "inspect", str(WORK / "source"), str(target)])
        shutil.rmtree(target)
    os.sync()
    theirs = spend([sys.executable, "-c", THEIRS, str(WORK / "source"), str(WORK / "theirs.pt")])
    print(f"{options.size / 1024:g} GiB{'CPU s':>26}{'elapsed s':>11}{'peak MB':>10}")
    for name, cost in [*((f"paceline to {kind}", cost) for kind, cost in costs), ("dcp_to_torch_save", theirs)]:
        print(f"{name:<22}{cost.cpu:>10.1f}{cost.wall:>11.1f}{cost.peak_mb:>10.0f}")
    shutil.rmtree(WORK, ignore_errors=True)
    worst = max(cost.peak_mb for _, cost in costs)
    if worst >= MOST_MB:
        sys.exit(f"missed: {worst:.0f} MB")


def strategy(ranks: int) -> bytes:
    from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
    from paceline.checkpoint.strategy.tensor_layout import TensorLayout

    layouts = {
        f"layers.{number}.weight": TensorLayout((ranks,), ((), (0,)) if number % 2 else ((0,), ()))
        for number in range(TENSORS)
    }
    return encode_strategy(Strategy((layouts,)), merged=False, as_json=False)


def spend(command: list[str]) -> Cost:
    cost = measure.measure(command, log=WORK / "log")
    if cost.exit_code:
        sys.exit((WORK / "log").read_text(errors="replace")[-2000:])
    return cost


if __name__ == "__main__":
    main()
