"""trace_view.json: one rank's timeline, host and device, as a bare JSON array with string time stamps."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.simulate.intervals import Intervals, union
from paceline.simulate.layouts.ascend_communication import CommOp, comm_ops_of
from paceline.simulate.layouts.ascend_csv import collective_calls
from paceline.simulate.layouts.ascend_names import NO_RANK, micros
from paceline.simulate.layouts.dialect import Dialect
from paceline.simulate.memory import memory_of
from paceline.simulate.model import CPU
from paceline.simulate.recording import Recording

LANES = ("Python", "CANN", "Ascend Hardware", "Communication", "Overlap Analysis", "AI Core Freq", "NPU MEM", "HBM")
OVERLAP = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
FREQUENCY_SAMPLES = 10  # per step
LINK_TYPES = {"HCCS": ("SDMA", "HCCS"), "RDMA": ("RDMA", "ROCE")}


def trace_view(recording: Recording, dialect: Dialect) -> Iterator[str]:
    """Events as JSON text; join them with ",\\n" inside brackets."""
    pids = {
        lane: (10_000 + recording.rank if lane == "Python" else 3_000_000 + number * 32 + recording.rank * 1024)
        for number, lane in enumerate(LANES)
    }
    groups = {group.id: number for number, group in enumerate(recording.cluster.groups_of(recording.rank))}
    yield from _names(pids, groups, dialect)
    for index, step in enumerate(recording.steps.number.tolist()):
        yield from _host(recording, index, pids["Python"], dialect)
        yield from _kernels(recording, step, pids, dialect)
        yield from _calls(recording, step, pids["CANN"], pids["Python"])
        yield from _communication(recording, step, pids["Communication"], groups)
        yield from _overlap(recording, index, pids["Overlap Analysis"])
        yield from _frequency(recording, index, pids["AI Core Freq"])
    yield from _memory(recording, pids["NPU MEM"])


def _names(pids: dict[str, int], groups: dict[str, int], dialect: Dialect) -> Iterator[str]:
    for lane, pid in pids.items():
        named = {"Python": dialect.host_lane, "Communication": dialect.communication_lane}
        yield _meta("process_name", pid, 0, named.get(lane, lane))
        order = f'"args": {{"sort_index": {LANES.index(lane)}}}'
        yield f'{{"name": "process_sort_index", "pid": {pid}, "tid": 0, {order}, "ph": "M"}}'
    for lane in ("Python", "CANN"):
        yield _meta("thread_name", pids[lane], pids["Python"], f"Thread {pids['Python']}")
    yield _meta("thread_name", pids["Ascend Hardware"], 2, "Stream 2")
    for number, name in enumerate(OVERLAP):
        yield _meta("thread_name", pids["Overlap Analysis"], number, name)
    for number in groups.values():
        yield _meta("thread_name", pids["Communication"], 2 * number, f"Group {number} Communication")
        yield _meta("thread_name", pids["Communication"], 2 * number + 1, "Plane 0")


def _meta(kind: str, pid: int, tid: int, name: str) -> str:
    return f'{{"name": "{kind}", "pid": {pid}, "tid": {tid}, "args": {{"name": "{name}"}}, "ph": "M"}}'


def _host(recording: Recording, index: int, pid: int, dialect: Dialect) -> Iterator[str]:
    steps = recording.steps
    start, end, ready = (int(column[index]) for column in (steps.start, steps.end, steps.ready))
    head = f'"pid": {pid}, "tid": {pid}, "ts": "{micros(start)}"'
    args = '"cat": "cpu_op", "args": {"Sequence number": -1, "Fwd thread id": 0}'
    number = int(steps.number[index])
    yield f'{{"ph": "X", "name": "{dialect.step_event}{number}", {head}, "dur": {(end - start) / 1000}, {args}}}'
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    yield f'{{"ph": "X", "name": "{loader}", {head}, "dur": {(ready - start) / 1000}, {args}}}'


def _kernels(recording: Recording, step: int, pids: dict[str, int], dialect: Dialect) -> Iterator[str]:
    """Per kernel: the framework's operator, the launch, the kernel, and the arrow between the last two."""
    kernels = recording.kernels.of(step)
    python, cann, hardware = pids["Python"], pids["CANN"], pids["Ascend Hardware"]
    constant = [
        (kernel.name, dialect.host_name(kernel, number), "AI_CPU" if kernel.core == CPU else kernel.core)
        for number, kernel in enumerate(recording.program.kernels)
    ]
    columns = (kernels.template, kernels.start, kernels.duration, kernels.wait)
    connection = step * 1_000_000
    for template, start, duration, wait in zip(*(column.tolist() for column in columns), strict=True):
        connection += 1
        name, host_name, task = constant[template]
        host = micros(start - wait)
        yield (
            f'{{"ph": "X", "name": "{host_name}", "pid": {python}, "tid": {python}, "ts": "{host}", '
            f'"dur": {wait / 1000}, "cat": "cpu_op", "args": {{"Sequence number": {connection}, "Fwd thread id": 0}}}}'
        )
        yield (
            f'{{"name": "Node@launch", "pid": {cann}, "tid": {python}, "ts": "{host}", "dur": {wait // 2 / 1000}, '
            f'"args": {{"Thread Id": {python}, "Mode": "launch", "level": "node", "id": "{name}", "item_id": "{name}", '
            f'"connection_id": {connection}}}, "ph": "X"}}'
        )
        yield (
            f'{{"name": "HostToDevice{connection}", "ph": "s", "cat": "HostToDevice", "id": "{connection}", '
            f'"pid": {cann}, "tid": {python}, "ts": "{host}"}}'
        )
        yield (
            f'{{"name": "{name}", "pid": {hardware}, "tid": 2, "ts": "{micros(start)}", "dur": {duration / 1000}, '
            f'"args": {{"Model Id": 4294967295, "Task Type": "{task}", "Physic Stream Id": 2, "Task Id": '
            f'{connection % 65536}, "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": {connection}}}, '
            f'"ph": "X"}}'
        )
        yield (
            f'{{"name": "HostToDevice{connection}", "ph": "f", "id": "{connection}", "ts": "{micros(start)}", '
            f'"cat": "HostToDevice", "pid": {hardware}, "tid": 2, "bp": "e"}}'
        )


def _calls(recording: Recording, step: int, pid: int, thread: int) -> Iterator[str]:
    for name, start, duration in (*recording.memory_calls(step), *collective_calls(recording, step)):
        yield (
            f'{{"name": "AscendCL@{name}", "pid": {pid}, "tid": {thread}, "ts": "{micros(start)}", '
            f'"dur": {duration / 1000}, "args": {{"Thread Id": {thread}, "Mode": "ACL_RTS", "level": "acl", '
            f'"id": "{name}", "item_id": "0", "connection_id": {step * 1_000_000 + 900_000}}}, "ph": "X"}}'
        )


def _communication(recording: Recording, step: int, pid: int, groups: dict[str, int]) -> Iterator[str]:
    for number, comm_op in enumerate(comm_ops_of(recording, step)):
        lane = 2 * groups[comm_op.route.group.id]
        count = comm_op.route.message.payload // 2
        yield (
            f'{{"name": "{comm_op.name}", "pid": {pid}, "tid": {lane}, "ts": "{micros(comm_op.start)}", '
            f'"dur": {comm_op.duration / 1000}, "args": {{"connection_id": {step * 1_000_000 + 500_000 + number}, '
            f'"model id": 4294967295, "data_type": "FP16", "alg_type": "RING", "count": {count}}}, "ph": "X"}}'
        )
        yield from _tasks(comm_op, pid, lane + 1)


def _tasks(comm_op: CommOp, pid: int, plane: int) -> Iterator[str]:
    """Wait for the last arrival, move the data, wait for the ring."""
    route = comm_op.route
    moving = comm_op.start + comm_op.sync
    if comm_op.sync:
        yield _task(
            "Notify_Wait", comm_op.start, comm_op.sync, pid, plane, NO_RANK, route.source, "LOCAL", 0, "INVALID_TYPE"
        )
    if route.sends:
        kind, link = LINK_TYPES[route.transport.name]
        name = "RDMASend" if kind == "RDMA" else ("Reduce_Inline" if "reduce" in route.op else "Memcpy")
        yield _task(name, moving, comm_op.transit, pid, plane, route.source, route.target, kind, route.bytes, link)
    rest = comm_op.wait - comm_op.sync
    if rest:
        yield _task(
            "Notify_Wait",
            moving + comm_op.transit,
            rest,
            pid,
            plane,
            route.target,
            route.source,
            "LOCAL",
            0,
            "INVALID_TYPE",
        )


def _task(
    name: str,
    start: int,
    duration: int,
    pid: int,
    plane: int,
    source: int,
    target: int,
    kind: str,
    size: int,
    link: str,
) -> str:
    return (
        f'{{"name": "{name}", "pid": {pid}, "tid": {plane}, "ts": "{micros(start)}", "dur": {duration / 1000}, '
        f'"args": {{"notify_id": "0", "duration estimated(us)": {duration / 1000}, "stream id": {plane + 10}, '
        f'"task id": 1, "context id": 0, "task type": "{name}", "src rank": {source}, "dst rank": {target}, '
        f'"transport type": "{kind}", "size(Byte)": {size}, "data type": "FP16", "link type": "{link}", '
        f'"bandwidth(GB/s)": {round(size / duration, 4) if duration else 0.0}, "model id": 4294967295}}, "ph": "X"}}'
    )


def _overlap(recording: Recording, index: int, pid: int) -> Iterator[str]:
    steps = recording.steps
    step = int(steps.number[index])
    computing, communicating = recording.computing(step), recording.communicating(step)
    whole = union(steps.start[index : index + 1], steps.duration[index : index + 1])
    lanes = (computing, communicating, communicating - computing, whole - computing - communicating)
    for lane, (name, intervals) in enumerate(zip(OVERLAP, lanes, strict=True)):
        yield from _bars(name, intervals, pid, lane)


def _bars(name: str, intervals: Intervals, pid: int, lane: int) -> Iterator[str]:
    for start, end in zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True):
        yield (
            f'{{"name": "{name}", "pid": {pid}, "tid": {lane}, "ts": "{micros(start)}", "dur": {(end - start) / 1000}, '
            f'"ph": "X"}}'
        )


def _frequency(recording: Recording, index: int, pid: int) -> Iterator[str]:
    start, duration = int(recording.steps.start[index]), int(recording.steps.duration[index])
    for sample in range(FREQUENCY_SAMPLES):
        time = start + duration * sample // FREQUENCY_SAMPLES // 10 * 10
        yield (
            f'{{"name": "AI Core Freq", "ts": "{micros(time)}", "pid": {pid}, "tid": 0, '
            f'"args": {{"MHz": {recording.megahertz(index)}}}, "ph": "C"}}'
        )


def _memory(recording: Recording, pid: int) -> Iterator[str]:
    samples = memory_of(recording)
    for time, reserved in zip(samples.time.tolist(), samples.reserved.tolist(), strict=True):
        yield (
            f'{{"name": "APP/HBM", "ts": "{micros(time)}", "pid": {pid}, "tid": 0, '
            f'"args": {{"KB": {reserved / 1024}}}, "ph": "C"}}'
        )
