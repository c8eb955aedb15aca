"""Jobs to run: a description with its code, small enough to be many."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

QUICK = """
import argparse, os, pathlib, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--train_url", required=True)
parser.add_argument("--data_url", default="")
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--fail", type=int, default=-1)
parser.add_argument("--wait_for", default="")
words = parser.parse_args()
rank = int(os.environ.get("RANK", os.environ["RANK_ID"]))
until = time.monotonic() + 1200
for step in range(words.steps):
    # In one piece: ranks share the worker's log, and print would write the end of the line apart.
    os.write(1, f"rank {rank} step {step} of GLOG_v={os.environ.get('GLOG_v')}\\n".encode())
    if words.wait_for and step == 0:
        while not pathlib.Path(words.wait_for).exists():
            if time.monotonic() > until:
                sys.exit("nobody came")
            time.sleep(0.05)
    if rank == words.fail:
        sys.exit(3)
if words.data_url:
    print("input:", sorted(path.name for path in pathlib.Path(words.data_url).iterdir()))
pathlib.Path(words.train_url).mkdir(parents=True, exist_ok=True)
(pathlib.Path(words.train_url) / f"throughput_{rank}.json").write_text(str(100.5 + rank))
"""
"""Runs in milliseconds; says what it was given; can fail, or wait for a file."""

DOCS = Path(__file__).parents[3] / "docs" / "jobs.md"


def documented_code() -> str:
    """The boot file of docs/jobs.md, "A first job"."""
    return _blocks("python")[0]


def documented_job(*, cloud: bool = False) -> dict[str, Any]:
    """job.yaml of docs/jobs.md, "A first job"; with `cloud`, as for ModelArts."""
    local, added = (yaml.safe_load(text) for text in _blocks("yaml")[:2])
    return {**local, **added} if cloud else local


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)


def write_job(directory: Path, *, code: str = QUICK, **keys: Any) -> Path:
    """job.yaml (JSON is YAML) beside its code."""
    (directory / "code").mkdir(parents=True, exist_ok=True)
    (directory / "code" / "train.py").write_text(code)
    described = {"job_name": "quick", "code_dir": "code", "boot_file": "train.py", "ranks": 2, **keys}
    path = directory / "job.yaml"
    path.write_text(json.dumps(described, indent=1))
    return path


def in_the_cloud(bucket: str, **keys: Any) -> dict[str, Any]:
    """What a description needs for ModelArts: as a user writes it, with a region and without endpoints."""
    return {
        "backend": "modelarts",
        "code_url": f"obs://{bucket}/code/",
        "output_url": f"obs://{bucket}/out/",
        "flavor": "modelarts.kat1.2xlarge",
        "modelarts": {"region": "cn-north-4"},
        "engine": {
            "name": "Ascend-Powered-Engine",
            "version": "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64",
        },
        "pre_start": {"agent": False},
        **keys,
    }
