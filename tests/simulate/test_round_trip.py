"""What the simulator recorded is what the readers read: written by different hands from the same facts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from paceline.run.batch import Batch
from paceline.simulate import ClusterSpec, simulate
from paceline.simulate.cluster import Cluster
from paceline.simulate.engine import run
from paceline.simulate.faults import conditions_under, parse_faults
from paceline.simulate.recording import Recording, clock_offsets, record
from reading import read_all, rows

SPEC = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=3, layers=2, micro_batches=2)
FAULTS = ("slow-rank:5:1.3", "small-packets:256")
READERS = {
    "ascend-text": "ascend_text", "ascend-text-ms": "ascend_text", "ascend-db": "ascend_db",
    "mindinsight": "mindinsight", "mindinsight-r13": "mindinsight", "mindinsight-r21": "mindinsight",
    "msadvisor": "mindinsight", "msprof": "msprof", "kineto": "kineto",
}  # fmt: skip
# What a format does not hold as the simulator means it: MindInsight's computation includes free time and its
# receive_alone leaves out what is hidden; msprof cannot tell apart the tasks of operators that overlap, and
# knows nothing from before the first iteration; NCCL's kernels tell their payload, not what they moved.
UNLIKE = {
    "mindinsight": {"computing", "bubble"},
    "mindinsight-r21": {"computing", "bubble"},
    "kineto": {"bytes"},
    "msprof": {"transit", "wait", "sync", "idle", "bytes", "duration", "data_wait", "free", "preparing"},
}
ROUNDING = 60  # ns: cluster_analyse has four decimals of a millisecond


def expected() -> list[Recording]:
    cluster = Cluster(SPEC)
    conditions = conditions_under(parse_faults(FAULTS, cluster), cluster)
    timeline = run(cluster, conditions)
    return [record(timeline, rank, int(offset)) for rank, offset in enumerate(clock_offsets(cluster, conditions))]


def compare(found: list[tuple[object, ...]], columns: dict[str, list[int]], unlike: set[str]) -> None:
    """Columns that were read agree; what is null in a format was not there to be read."""
    for number, (name, values) in enumerate(columns.items()):
        if name in unlike:
            continue
        pairs = [(row[number], value) for row, value in zip(found, values, strict=True) if row[number] is not None]
        assert all(abs(int(str(got)) - wanted) <= ROUNDING for got, wanted in pairs), (name, pairs[:5])


def steps_of(recording: Recording) -> dict[str, list[int]]:
    steps = recording.steps
    columns = {
        "step": steps.number, "duration": steps.duration, "data_wait": steps.ready - steps.start,
        "forward_backward": steps.backward_end - steps.ready, "tail": steps.end - steps.backward_end,
        "computing": steps.computing, "communication": steps.communication, "overlapped": steps.overlapped,
        "exposed": steps.exposed, "free": steps.free, "bubble": steps.bubble,
        "preparing": steps.first_work - steps.start,
    }  # fmt: skip
    return {name: column.tolist() for name, column in columns.items()}


def collectives_of(recording: Recording) -> dict[str, list[int]]:
    talks = recording.talks
    order = np.argsort(talks.start, kind="stable")
    sent = np.array([wire.bytes for wire in recording.wires])[talks.template]
    columns = {
        "step": talks.step, "duration": talks.duration, "transit": talks.transit, "wait": talks.wait,
        "sync": talks.sync, "bytes": sent,
    }  # fmt: skip
    return {name: column[order].tolist() for name, column in columns.items()}


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Batch]:
    layout = str(request.param)
    simulate(tmp_path / "run", SPEC, FAULTS, layout)
    reader = import_module(f"paceline.formats.{READERS[layout]}").READER
    batch, _ = read_all(reader, tmp_path / "run", tmp_path)
    assert [str(warning) for warning in batch.warnings] == []
    return layout, batch


def test_steps_and_collectives_come_back(read: tuple[str, Batch]) -> None:
    layout, batch = read
    unlike = UNLIKE.get(layout, set())
    for recording in expected():
        here = f"rank = {recording.rank}"
        steps = steps_of(recording)
        compare(rows(batch, "steps", ",".join(steps), f"{here} ORDER BY step"), steps, unlike)
        collectives = collectives_of(recording)
        named = ",".join(collectives)
        compare(
            rows(batch, "collectives", named, f"{here} AND op <> 'receive' ORDER BY start"),
            _without_receives(recording, collectives), unlike - {"duration"},
        )  # fmt: skip


def _without_receives(recording: Recording, columns: dict[str, list[int]]) -> dict[str, list[int]]:
    order = np.argsort(recording.talks.start, kind="stable")
    kept = [recording.wires[number].op != "receive" for number in recording.talks.template[order]]
    return {name: [value for value, keep in zip(values, kept, strict=True) if keep] for name, values in columns.items()}


def test_operators_and_kernels_come_back(read: tuple[str, Batch]) -> None:
    _, batch = read
    for recording in expected():
        ops = [wire.op for wire in recording.wires]
        wanted = {op: ops.count(op) * SPEC.steps for op in set(ops)}
        found = dict(rows(batch, "collectives", "op, count(*)", f"rank = {recording.rank} GROUP BY op"))
        assert found == wanted
        kernels = rows(
            batch,
            "kernels",
            "count(*), sum(duration)",
            f"rank = {recording.rank} AND core IS DISTINCT FROM 'COMMUNICATION'",
        )
        if kernels and kernels[0][0]:
            assert kernels == [(len(recording.kernels.start), int(recording.kernels.duration.sum()))]
