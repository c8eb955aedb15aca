"""The example's boot file: the reference GPT-2, with its outputs where the job says.

A job passes --train_url=DIR (its output), --data_url=DIR (its input, if it has one) and its hyperparameters; what the
reference training does not know by these names is translated here. With a model of your own, write throughput_{rank}.json,
ranksize.json and accuracy.json to train_url instead (docs/bench.md).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paceline.training.runner.entrypoint import StartOptions, start

TORCH_NAMES = {"RANK": "RANK_ID", "WORLD_SIZE": "RANK_SIZE", "LOCAL_RANK": "DEVICE_ID"}


def main(arguments: list[str]) -> int:
    for name, ascend in TORCH_NAMES.items():
        # ModelArts starts one process per card and names ranks in Ascend's way.
        if ascend in os.environ:
            os.environ.setdefault(name, os.environ[ascend])
    os.environ.setdefault("MASTER_ADDR", os.environ.get("VC_WORKER_HOSTS", "127.0.0.1").split(",")[0])
    place, words = Path("output"), []
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "--train_url":
            place = Path(value)
        else:
            words.append(f"--train_dataset_dir={value}" if name == "--data_url" else word)
    if os.environ.get("SINGLESERVER_MODE"):
        # Every node trains alone: its results must not overwrite another's.
        place = place / os.environ.get("VC_TASK_INDEX", "0")
    return start(None, [*words, f"--output_dir={place}"], StartOptions())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
