"""The readers read what the simulator recorded; they share no code with its writers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from paceline.run.tables.batch import BatchSink
from paceline.simulate import ClusterSpec, simulate
from paceline.simulate.cluster import Cluster
from paceline.simulate.faults import parse_faults, state_with_faults
from paceline.simulate.recording import Recording, clock_offsets, record
from paceline.simulate.schedule_engine import run_schedule
from support.reader_helpers import read_all, rows

SPEC = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=3, layers=2, micro_batches=2)
FAULTS = ("slow-rank:5:1.3", "small-packets:256")
READERS = {
    "ascend-text": "ascend_text",
    "ascend-text-ms": "ascend_text",
    "ascend-db": "ascend_db",
    "mindinsight": "mindinsight",
    "mindinsight-r13": "mindinsight",
    "mindinsight-r21": "mindinsight",
    "msadvisor": "mindinsight",
    "msprof": "msprof",
    "kineto": "kineto",
}
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
    state = state_with_faults(parse_faults(FAULTS, cluster), cluster)
    timeline = run_schedule(cluster, state)
    return [record(timeline, rank, int(offset)) for rank, offset in enumerate(clock_offsets(cluster, state))]


def compare(found: list[tuple[object, ...]], columns: dict[str, list[int]], unlike: set[str]) -> None:
    """Columns that were read are equal; a column that is null is not in the format."""
    for number, (name, values) in enumerate(columns.items()):
        if name in unlike:
            continue
        pairs = [(row[number], value) for row, value in zip(found, values, strict=True) if row[number] is not None]
        assert all(abs(int(str(got)) - wanted) <= ROUNDING for got, wanted in pairs), (name, pairs[:5])


def steps_of(recording: Recording) -> dict[str, list[int]]:
    steps = recording.steps
    columns = {
        "step": steps.number,
        "duration": steps.duration,
        "data_wait": steps.ready - steps.start,
        "forward_backward": steps.backward_end - steps.ready,
        "tail": steps.end - steps.backward_end,
        "computing": steps.computing,
        "communication": steps.communication,
        "overlapped": steps.overlapped,
        "exposed": steps.exposed,
        "free": steps.free,
        "bubble": steps.bubble,
        "preparing": steps.first_work - steps.start,
    }
    return {name: column.tolist() for name, column in columns.items()}


def collectives_of(recording: Recording) -> dict[str, list[int]]:
    comm_ops = recording.comm_ops
    order = np.argsort(comm_ops.start, kind="stable")
    sent = np.array([route.bytes for route in recording.routes])[comm_ops.template]
    columns = {
        "step": comm_ops.step,
        "duration": comm_ops.duration,
        "transit": comm_ops.transit,
        "wait": comm_ops.wait,
        "sync": comm_ops.sync,
        "bytes": sent,
    }
    return {name: column[order].tolist() for name, column in columns.items()}


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, BatchSink]:
    layout = str(request.param)
    simulate(tmp_path / "run", SPEC, FAULTS, layout)
    reader = import_module(f"paceline.formats.{READERS[layout]}.reader").READER
    batch, _ = read_all(reader, tmp_path / "run", tmp_path)
    assert [str(warning) for warning in batch.warnings] == []
    return layout, batch


def test_steps_and_collectives_are_read_back(read: tuple[str, BatchSink]) -> None:
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
            _without_receives(recording, collectives),
            unlike - {"duration"},
        )


def _without_receives(recording: Recording, columns: dict[str, list[int]]) -> dict[str, list[int]]:
    order = np.argsort(recording.comm_ops.start, kind="stable")
    kept = [recording.routes[number].op != "receive" for number in recording.comm_ops.template[order]]
    return {name: [value for value, keep in zip(values, kept, strict=True) if keep] for name, values in columns.items()}


def test_operators_and_kernels_are_read_back(read: tuple[str, BatchSink]) -> None:
    _, batch = read
    for recording in expected():
        ops = [route.op for route in recording.routes]
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
