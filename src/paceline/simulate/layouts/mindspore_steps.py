"""MindSpore's step trace (10 ns ticks), and the parts of each step for its cluster pages (ms)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.simulate.cluster import Ints
from paceline.simulate.intervals import union
from paceline.simulate.layouts.ascend_names import graph_name
from paceline.simulate.recording import Recording

BOOT = 11_000 * 10**9  # ns since the cards' boot, where their counters start, when the job began
STREAMS = {"tp": 36, "dp": 40, "mp": 44, "receive": 48, "send": 49}


def ticks_of(recording: Recording, nanoseconds: Ints) -> Ints:
    """Time in the card's counter: units of 10 ns since boot."""
    return (nanoseconds - recording.cluster.spec.start + BOOT) // 10


def boot_micros(recording: Recording, nanoseconds: int) -> float:
    return (nanoseconds - recording.cluster.spec.start + BOOT) / 1000


@dataclass(frozen=True)
class GraphOperator:
    """A communication operator of the graph, which runs once per step."""

    message: int
    stream: int
    place: int  # the n-th on its stream
    name: str  # AllReduce-op12

    @property
    def column(self) -> str:
        """stream_36_0_AllReduce-op12"""
        return f"stream_{self.stream}_{self.place}_{self.name}"


def graph_operators(recording: Recording) -> list[GraphOperator]:
    """By stream, as MindSpore orders its columns."""
    places: dict[int, int] = {}
    found = []
    for number, message in enumerate(recording.program.messages):
        stream = STREAMS[message.op if message.op in STREAMS else message.axis]
        place = places.get(stream, 0)
        places[stream] = place + 1
        found.append(GraphOperator(number, stream, place, graph_name(recording, number)))
    return sorted(found, key=lambda operator: (operator.stream, operator.place))


def step_trace(recording: Recording) -> str:
    """step_trace_raw_{rank}_detail_time.csv; the last row is the mean of all steps but the first."""
    operators = graph_operators(recording)
    header = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
    named = "".join(f",{op.column},{op.column}_start_point,{op.column}_end_point" for op in operators)
    steps = recording.steps
    start, end, ready, backward = (
        ticks_of(recording, column) for column in (steps.start, steps.end, steps.ready, steps.backward_end)
    )
    base = np.stack([start, end, end - start, ready, backward, ready - start, backward - ready, end - backward], axis=1)
    table = np.concatenate([base, _operator_columns(recording, operators)], axis=1)
    rows = [f"{number}," + ",".join(map(str, row)) for number, row in zip(steps.number, table.tolist(), strict=True)]
    typical = table[1:] if len(table) > 1 else table
    rows.append("-," + ",".join(str(round(value)) for value in typical.mean(axis=0).tolist()))
    return "\n".join([header + named, *rows, ""])


def _operator_columns(recording: Recording, operators: list[GraphOperator]) -> Ints:
    """[step, 3 per operator]: duration, start, end."""
    tables = []
    for step in recording.steps.number.tolist():
        comm_ops = recording.comm_ops.of(step)
        position = np.argsort(comm_ops.template)
        duration = (comm_ops.duration // 10)[position]
        start = ticks_of(recording, comm_ops.start)[position]
        triples = np.stack([duration, start, start + duration], axis=1)
        tables.append(triples[[operator.message for operator in operators]].reshape(-1))
    return np.array(tables, dtype=np.int64).reshape(len(tables), 3 * len(operators))


def parallel_mode(recording: Recording) -> str:
    spec = recording.cluster.spec
    return "pipeline-parallel" if spec.pp > 1 else ("model-parallel" if spec.tp > 1 else "data-parallel")


def cluster_analyse(recording: Recording) -> str:
    """Milliseconds, four decimals, one row per step and their mean without the first:

    communication_alone = communication ∖ computing      computation = step − communication_alone
    receive_alone       = receive ∖ everything else      stage       = step − receive_alone
    collective_alone    = (communication without receive) ∖ computing
    """
    rows = np.array([_split(recording, index) for index in range(len(recording.steps.number))]) / 1e6
    header = "computation_time,communication_alone_time"
    if parallel_mode(recording) == "pipeline-parallel":
        header += ",stage_time,receive_alone_time,collective_communication_alone_time"
    else:
        rows = rows[:, :2]
    typical = rows[1:] if len(rows) > 1 else rows
    table = np.vstack([rows, typical.mean(axis=0)])
    return "\n".join([header, *(",".join(str(round(value, 4)) for value in row) for row in table.tolist()), ""])


def _split(recording: Recording, index: int) -> tuple[int, int, int, int, int]:
    step, duration = int(recording.steps.number[index]), int(recording.steps.duration[index])
    comm_ops, computing = recording.comm_ops.of(step), recording.computing(step)
    receives = np.array(
        [recording.program.messages[number].op == "receive" for number in comm_ops.template], dtype=np.bool_
    )
    receiving = union(comm_ops.start[receives], comm_ops.duration[receives])
    others = union(comm_ops.start[~receives], comm_ops.duration[~receives])
    alone = (recording.communicating(step) - computing).length
    waiting = (receiving - computing - others).length
    return duration - alone, alone, duration - waiting, waiting, (others - computing).length
