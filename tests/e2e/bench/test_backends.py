"""One bench.yaml on three backends: the real reference training, real Slurm, a ModelArts stand-in; one schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.jobs.conftest import (
    bucket,
    modelarts,
    own_state,
    region,
    region_server,
    s3,
    slurm,
    slurm_cluster,
    standin_server,
)
from paceline.bench.result import read_result
from support.bench.result_trees import paceline
from support.jobs.images import TORCH_IMAGE
from support.jobs.standin import StandIn
from support.jobs.workloads import in_the_cloud
from support.storage.fixtures import own_places, proxy
from support.storage.servers import S3Server, _free_ports

__all__ = [
    "bucket",
    "modelarts",
    "own_places",
    "own_state",
    "proxy",
    "region",
    "region_server",
    "s3",
    "slurm",
    "slurm_cluster",
    "standin_server",
]
EXAMPLE = Path(__file__).parents[3] / "src" / "paceline" / "bench" / "examples" / "gpt2"


_OPEN = ("outliers", "warnings", "warnings_said", "environment", "frameworks", "topology")
"""What is in them differs by node and run."""


def shape_of(value: object) -> object:
    """The keys of a result, all the way down; numbers, texts and how many stood out are whatever they are."""
    if isinstance(value, dict):
        return {key: None if key in _OPEN else shape_of(each) for key, each in sorted(value.items())}
    return [shape_of(value[0])] if isinstance(value, list) and value else None


def alike(one: object, other: object) -> bool:
    """The same keys; what one backend knows another may not (an interval, what the nodes report)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return alike(one[0], other[0])
    return one is None or other is None


@pytest.fixture
def bench_yaml(tmp_path: Path, bucket: str, modelarts: StandIn) -> Path:
    """The shipped example, smaller, with what Slurm and ModelArts need added."""
    said = yaml.safe_load((EXAMPLE / "bench.yaml").read_text())
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_bytes((EXAMPLE / "train.py").read_bytes())
    said["job"] |= in_the_cloud(
        bucket,
        ranks=2,
        slurm={"partition": "tests"},
        code_dir="code",
        engine={"name": "Ascend-Powered-Engine", "version": TORCH_IMAGE},
        pre_start={},
        environment={"MASTER_PORT": _free_ports(1)[0], "OMP_NUM_THREADS": 1},
    )
    said["job"]["hyperparameters"] |= {"epochs": 1}
    del said["sweep"], said["profile"]
    said["repeat"] = 1
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(said))
    return tmp_path / "bench.yaml"


@pytest.mark.timeout(2400)  # three real trainings behind two real schedulers
def test_one_description_gives_results_of_one_schema_everywhere(
    bench_yaml: Path, s3: S3Server, modelarts: StandIn, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("slurm")
    shapes = []
    for backend in ("local", "slurm", "modelarts"):
        out = bench_yaml.parent / backend
        done = paceline(
            "bench", "run", bench_yaml, "--backend", backend, "--out", out, cwd=bench_yaml.parent, patience=700
        )
        assert done.returncode == 0, f"{backend}: {done.stderr}"
        result = read_result(out / "result.json")
        assert (result.backend, result.largest.ranks, result.result) == (backend, 2, "OK")
        assert result.throughput_ratio and 0 < (result.accuracy or 0) < 1
        assert result.proc_start_time and result.proc_end_time
        assert result.largest.repetitions[0].workload.global_batch_size and result.largest.tokens_per_second_per_card
        if backend == "modelarts":
            assert result.resource_util_ratio == 0.5, "as the service measured it"
        shapes.append(shape_of(json.loads((out / "result.json").read_text())))
    assert alike(shapes[0], shapes[1]) and alike(shapes[1], shapes[2])
