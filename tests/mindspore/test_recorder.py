"""The light recorder in real MindSpore loops: training on CPU, and an all-reduce between two ranks over mccl."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import mindspore as ms
import paceline
from mindspore import nn, ops
from paceline.profiling import Recorder

TWO_RANKS = """
import sys
import numpy as np
import mindspore as ms
from mindspore import communication, ops
from paceline.profiling import Recorder

ms.set_device("CPU")
communication.init("mccl")
total = ops.AllReduce()
value = ms.Tensor(np.ones(1024, np.float32))
with Recorder(sys.argv[1], rank=communication.get_rank(), world_size=2, job="two", exact_every=2) as recorder:
    for _ in range(8):
        value = total(value)
        recorder.step()
assert float(value.asnumpy()[0]) == 256.0
"""


def trained(recorder: Recorder) -> bytes:
    """Train ten steps; returns the weights as bytes."""
    ms.set_seed(1)
    np.random.seed(1)
    net = nn.Dense(16, 4)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = ms.value_and_grad(lambda data: ops.square(net(data)).mean(), None, optimizer.parameters)
    batches = [ms.Tensor(np.random.randn(8, 16).astype(np.float32)) for _ in range(10)]
    for batch in recorder.data(batches):
        with recorder.phase("forward_backward"):
            _, gradients = step(batch)
        with recorder.phase("tail"):
            optimizer(gradients)
        recorder.step()
    return b"".join(parameter.asnumpy().tobytes() for parameter in net.trainable_params())


def test_loop_is_recorded_and_its_result_is_bit_identical(tmp_path: Path) -> None:
    plain = trained(Recorder(tmp_path / "off"))
    with Recorder(tmp_path / "on", rank=0) as recorder:
        assert trained(recorder) == plain
    assert not (tmp_path / "off").exists()
    with paceline.open(tmp_path / "on", store=tmp_path / "store") as run:
        rows = run.sql("SELECT step, data_wait, forward_backward, tail, duration FROM steps ORDER BY step").fetchall()
    assert [row[0] for row in rows] == list(range(2, 11))
    assert all(0 <= sum(row[1:4]) <= row[4] for row in rows)


def test_collectives_of_two_ranks_have_durations_in_exact_steps(tmp_path: Path) -> None:
    program = tmp_path / "two_ranks.py"
    program.write_text(TWO_RANKS)
    launch = [
        "-m",
        "mindspore.parallel.cluster.run",
        "--worker_num=2",
        "--local_worker_num=2",
        "--join=True",
        f"--master_port={free_port()}",
        f"--log_dir={tmp_path / 'log'}",
        str(program),
        str(tmp_path / "light"),
    ]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, *launch], env=environment, capture_output=True, text=True, timeout=600)
    logs = "\n".join(path.read_text()[-2000:] for path in (tmp_path / "log").glob("worker*.log"))
    assert done.returncode == 0, logs
    recorded = [collectives_by_step(path) for path in sorted((tmp_path / "light").rglob("steps-*.jsonl"))]
    assert len(recorded) == 2
    for steps in recorded:
        assert {number: len(found) for number, found in steps.items()} == dict.fromkeys(range(1, 9), 1)
        for number, [(op, group, _, length, size, _, _)] in steps.items():
            assert (op, size) == ("all_reduce", 4096)
            assert group.startswith("mccl_world_group@")
            assert (length is not None) == (number % 2 == 0)


def collectives_by_step(log: Path) -> dict[int, list[Any]]:
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return {record["step"]: record.get("c", []) for record in records if "d" in record}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
