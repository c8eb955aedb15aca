"""The SQLite output of torch_npu's profiler: ascend_pytorch_profiler_{rank}.db and analysis.db per rank."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from paceline.simulate.cluster import Cluster
from paceline.simulate.intervals import union
from paceline.simulate.layouts.ascend_communication import CommOp
from paceline.simulate.layouts.ascend_csv import allocations, collective_calls
from paceline.simulate.layouts.ascend_db_analysis import Row, all_comm_ops, analysis
from paceline.simulate.layouts.ascend_db_schema import ANALYSIS, ENUMS, PROFILER
from paceline.simulate.layouts.ascend_names import HCOM, NO_RANK, shapes, worker
from paceline.simulate.layouts.ascend_text import OUTPUT, metadata, profiler_info, write_json
from paceline.simulate.layouts.layout import has_detail_files
from paceline.simulate.memory import DRIVER, memory_of
from paceline.simulate.model import CPU, VECTOR, Kernel
from paceline.simulate.recording import Recording

COMPUTE_STREAM, COMMUNICATION_STREAM = 2, 40
MODEL_ID = 4294967295
FP16, NOTHING = 3, 65535
STREAM_POINTER = 733279888


class AscendDb:
    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.out, self.cluster = out, cluster

    def write(self, recording: Recording) -> Path:
        root = self.out / f"{worker(recording)}_ascend_pt"
        output = root / OUTPUT
        output.mkdir(parents=True, exist_ok=True)
        write_json(root / f"profiler_info_{recording.rank}.json", profiler_info(recording, export="db"))
        write_json(root / "profiler_metadata.json", metadata(recording))
        _database(output / "analysis.db", ANALYSIS, analysis(recording))
        path = output / f"ascend_pytorch_profiler_{recording.rank}.db"
        _database(path, PROFILER, _profiler(recording))
        return path

    def finish(self) -> None:
        """There are no files of the whole cluster."""


def _database(path: Path, schema: dict[str, str], tables: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """Without journal and sync: an incomplete database is never seen, because the directory is renamed at the end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for name, columns in schema.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
        for name, rows in tables:
            marks = ",".join("?" * (schema[name].count(",") + 1))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        if "TASK" in schema:
            connection.execute("CREATE INDEX TaskIndex ON TASK (startNs, globalTaskId)")
            connection.execute("CREATE INDEX CommunicationTaskIndex ON COMMUNICATION_TASK_INFO (globalTaskId)")
        connection.execute("COMMIT")


class _Strings:
    """STRING_IDS: every text once."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))

    def rows(self) -> Iterator[Row]:
        yield from ((number, text) for text, number in self.ids.items())


def _profiler(recording: Recording) -> Iterator[tuple[str, Iterable[Row]]]:
    strings = _Strings()
    yield from _identity(recording)
    yield from ENUMS.items()
    yield (
        "STEP_TIME",
        zip(recording.steps.number.tolist(), recording.steps.start.tolist(), recording.steps.end.tolist(), strict=True),
    )
    yield "COMMUNICATION_OP", _operators(recording, strings)
    if has_detail_files(recording):
        tasks, infos = _communication_tasks(recording, strings)
        yield "TASK", tasks
        yield "COMMUNICATION_TASK_INFO", infos
        yield "TASK", _compute_tasks(recording, strings)
        yield "COMPUTE_TASK_INFO", _compute_infos(recording, strings)
        yield "CANN_API", _launches(recording, strings)
        yield "PYTORCH_API", _python(recording, strings)
        yield "OVERLAP_ANALYSIS", _overlap(recording)
        yield "AICORE_FREQ", _frequencies(recording)
        yield "MEMORY_RECORD", _memory(recording, strings)
        yield "NPU_MEM", _process_memory(recording, strings)
        yield "OP_MEMORY", _operator_memory(recording, strings)
    yield "STRING_IDS", strings.rows()


def _identity(recording: Recording) -> Iterator[tuple[str, Iterable[Row]]]:
    cluster, rank = recording.cluster, recording.rank
    device = cluster.device(rank)
    metadata_rows = {
        f"SCHEMA_VERSION_{part}": number for part, number in (("MICRO", "0"), ("MINOR", "0"), ("MAJOR", "1"))
    }
    metadata_rows["SCHEMA_VERSION"] = "1.0.0"
    metadata_rows |= {name: msgspec.json.encode(value).decode() for name, value in metadata(recording).items()}
    yield "SESSION_TIME_INFO", [(int(recording.steps.start[0]), int(recording.steps.end[-1]))]
    yield "NPU_INFO", [(device, "Ascend910B")]
    yield "HOST_INFO", [(str(3538958389648580000 + cluster.host(rank)), cluster.host_name(rank))]
    yield "RANK_DEVICE_MAP", [(rank, device)]
    yield "META_DATA", list(metadata_rows.items())


def _operators(recording: Recording, strings: _Strings) -> Iterator[Row]:
    ring = strings("RING")
    for number, (_, comm_op) in enumerate(all_comm_ops(recording), start=1):
        route = comm_op.route
        yield (
            strings(comm_op.name),
            comm_op.start,
            comm_op.start + comm_op.duration,
            500_000 + number,
            strings(route.group.id),
            number,
            0,
            0,
            FP16,
            ring,
            route.message.payload // 2,
            strings(f"hcom_{HCOM[route.op]}_"),
        )


def _communication_tasks(recording: Recording, strings: _Strings) -> tuple[list[Row], list[Row]]:
    """Per operator: wait for the last arrival, move the data, wait for the ring; global ids from 1,000,000 on."""
    tasks: list[Row] = []
    infos: list[Row] = []
    device, pid = recording.cluster.device(recording.rank), 10_000 + recording.rank
    for operator, (_, comm_op) in enumerate(all_comm_ops(recording), start=1):
        for name, kind, start, duration, ends, codes, size in _tasks(comm_op):
            id = 1_000_000 + len(tasks)
            tasks.append(
                (
                    start,
                    start + duration,
                    device,
                    500_000 + operator,
                    id,
                    pid,
                    strings(kind),
                    NO_RANK,
                    COMMUNICATION_STREAM,
                    len(tasks) % 65536,
                    MODEL_ID,
                )
            )
            infos.append(
                (
                    strings(comm_op.name),
                    id,
                    strings(name),
                    0,
                    strings(comm_op.route.group.id),
                    0,
                    NOTHING,
                    *ends,
                    codes[0],
                    size,
                    FP16,
                    codes[1],
                    operator,
                )
            )
    return tasks, infos


def _tasks(comm_op: CommOp) -> Iterator[tuple[str, str, int, int, tuple[int, int], tuple[int, int], int]]:
    """(task, hardware task, start, duration, (src, dst), (transport, link), bytes)."""
    route, moving = comm_op.route, comm_op.start + comm_op.sync
    if comm_op.sync:
        yield "Notify_Wait", "Notify Wait", comm_op.start, comm_op.sync, (NO_RANK, route.source), (2, NOTHING), 0
    if route.sends:
        ends = (route.source, route.target)
        if route.transport.name == "RDMA":
            yield "RDMASend", "RDMA", moving, comm_op.transit, ends, (1, 3), route.bytes
        else:
            name = "Reduce_Inline" if "reduce" in route.op else "Memcpy"
            yield name, "SDMA", moving, comm_op.transit, ends, (0, 1), route.bytes
    rest = comm_op.wait - comm_op.sync
    if rest:
        ends = (route.target, route.source)
        yield "Notify_Wait", "Notify Wait", moving + comm_op.transit, rest, ends, (2, NOTHING), 0


def _compute_tasks(recording: Recording, strings: _Strings) -> Iterator[Row]:
    device, pid = recording.cluster.device(recording.rank), 10_000 + recording.rank
    hardware = {CPU: "KERNEL_AICPU", VECTOR: "KERNEL_AIVEC"}
    kinds = [strings(hardware.get(kernel.core, "KERNEL_AICORE")) for kernel in recording.program.kernels]
    kernels = recording.kernels
    ends = (kernels.start + kernels.duration).tolist()
    rows = zip(kernels.start.tolist(), ends, kernels.template.tolist(), strict=True)
    for number, (start, end, template) in enumerate(rows, start=1):
        yield (
            start,
            end,
            device,
            number,
            number,
            pid,
            kinds[template],
            NO_RANK,
            COMPUTE_STREAM,
            number % 65536,
            MODEL_ID,
        )


def _compute_infos(recording: Recording, strings: _Strings) -> Iterator[Row]:
    known: dict[tuple[int, float], Row] = {}
    rows = zip(recording.kernels.template.tolist(), recording.kernels.step.tolist(), strict=True)
    for number, (template, step) in enumerate(rows, start=1):
        load = recording.load(template, step)
        if (template, load) not in known:
            known[(template, load)] = _compute_info(recording.program.kernels[template].loaded(load), strings)
        name, blocks, *rest = known[(template, load)]
        yield (name, number, blocks, 0, *rest)


def _compute_info(kernel: Kernel, strings: _Strings) -> Row:
    into, out = len(kernel.inputs), len(kernel.outputs)
    texts = (
        ";".join(["ND"] * into),
        ";".join(["FLOAT16"] * into),
        shapes(kernel.inputs),
        ";".join(["ND"] * out),
        ";".join(["FLOAT16"] * out),
        shapes(kernel.outputs),
        "N/A",
    )
    blocks = 40 if kernel.core == VECTOR else 20
    return (strings(kernel.name), blocks, strings(kernel.core), strings(kernel.type), *map(strings, texts))


def _launches(recording: Recording, strings: _Strings) -> Iterator[Row]:
    launch, thread = strings("launch"), _thread(recording)
    kernels = recording.kernels
    rows = zip(kernels.start.tolist(), kernels.wait.tolist(), strict=True)
    for number, (start, wait) in enumerate(rows, start=1):
        yield (start - wait, start - wait + wait // 2, 10000, thread, number, launch)
    others = (
        call
        for step in recording.steps.number.tolist()
        for call in (*recording.memory_calls(step), *collective_calls(recording, step))
    )
    for number, (name, start, duration) in enumerate(others, start=2_000_000):
        yield (start, start + duration, 20000, thread, number, strings(name))


def _python(recording: Recording, strings: _Strings) -> Iterator[Row]:
    thread, steps = _thread(recording), recording.steps
    for number, start, end in zip(steps.number.tolist(), steps.start.tolist(), steps.end.tolist(), strict=True):
        name = strings(f"ProfilerStep#{number}")
        yield (start, end, thread, None, name, -1, 0, None, None, None, 50001)
    names = [strings(f"aten::{kernel.type}") for kernel in recording.program.kernels]
    kernels = recording.kernels
    rows = zip(kernels.template.tolist(), kernels.start.tolist(), kernels.wait.tolist(), strict=True)
    for number, (template, start, wait) in enumerate(rows, start=1):
        yield (start - wait, start, thread, number, names[template], number, 0, None, None, None, 50001)


def _thread(recording: Recording) -> int:
    pid = 10_000 + recording.rank
    return pid << 32 | pid


def _overlap(recording: Recording) -> Iterator[Row]:
    """type 0 computing, 1 communication, 2 communication not overlapped, 3 free."""
    device, steps, number = recording.cluster.device(recording.rank), recording.steps, 0
    for index, step in enumerate(steps.number.tolist()):
        computing, communicating = recording.computing(step), recording.communicating(step)
        whole = union(steps.start[index : index + 1], steps.duration[index : index + 1])
        lanes = (computing, communicating, communicating - computing, whole - computing - communicating)
        for kind, lane in enumerate(lanes):
            for start, end in zip(lane.starts.tolist(), lane.ends.tolist(), strict=True):
                number += 1
                yield (number, device, start, end, kind)


def _frequencies(recording: Recording) -> Iterator[Row]:
    device = recording.cluster.device(recording.rank)
    for index, (start, duration) in enumerate(
        zip(recording.steps.start.tolist(), recording.steps.duration.tolist(), strict=True)
    ):
        yield from ((device, start + duration * part // 10, recording.megahertz(index)) for part in range(10))


def _memory(recording: Recording, strings: _Strings) -> Iterator[Row]:
    device, component, samples = recording.cluster.device(recording.rank), strings("PTA"), memory_of(recording)
    for time, allocated, reserved in zip(
        samples.time.tolist(), samples.allocated.tolist(), samples.reserved.tolist(), strict=True
    ):
        yield (component, time, allocated, reserved, allocated, STREAM_POINTER, device)


def _process_memory(recording: Recording, strings: _Strings) -> Iterator[Row]:
    device, kind, samples = recording.cluster.device(recording.rank), strings("app"), memory_of(recording)
    for time, reserved in zip(samples.time.tolist(), samples.reserved.tolist(), strict=True):
        yield (kind, 0, reserved + DRIVER, time, device)


def _operator_memory(recording: Recording, strings: _Strings) -> Iterator[Row]:
    device, name = recording.cluster.device(recording.rank), strings("aten::empty")
    for size, start, end, before, after, reserved in allocations(recording):
        totals = (before, reserved, before, after, reserved, after)
        yield (name, size, start, end, end, end - start, end - start, *totals, STREAM_POINTER, device)
