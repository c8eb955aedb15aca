"""Output of `msprof --export`: PROF_*/device_N/timeline/*.json, one file per kind and iteration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paceline.simulate.cluster import Cluster
from paceline.simulate.intervals import union
from paceline.simulate.layouts.ascend_communication import comm_ops_of
from paceline.simulate.layouts.ascend_names import graph_name
from paceline.simulate.layouts.ascend_text import write_json_array, write_text
from paceline.simulate.layouts.mindinsight import write_compact_json
from paceline.simulate.layouts.mindspore_hccl import hccl_tasks
from paceline.simulate.layouts.mindspore_steps import STREAMS, boot_micros
from paceline.simulate.layouts.mindspore_timeline import kernel_name
from paceline.simulate.model import CPU
from paceline.simulate.recording import NOMINAL_MHZ, Recording

HARDWARE, CANN, HCCL, OVERLAP = 3, 1003602, 1003611, 1003612
KERNELS = 70000  # thread of the whole operators
MODEL = 1
COMPUTE_STREAM = 2
LINK_TYPES = {"SDMA": "HCCS", "RDMA": "ROCE", "LOCAL": "INVALID_TYPE"}


class Msprof:
    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.out, self.cluster = out, cluster

    def write(self, recording: Recording) -> Path:
        rank, device = recording.rank, self.cluster.device(recording.rank)
        letters = "".join(chr(ord("A") + int(digit)) for digit in f"{rank:016d}")
        root = self.out / "profiler" / f"PROF_000001_20251115120000{rank % 1000:03d}_{letters}" / f"device_{device}"
        timeline = root / "timeline"
        timeline.mkdir(parents=True, exist_ok=True)
        _write_identity(recording, root, device)
        for index, step in enumerate(recording.steps.number.tolist()):
            name = f"{device}_{MODEL}_{step}.json"
            write_json_array(timeline / f"step_trace_{name}", _step_trace(recording))
            write_json_array(timeline / f"hccl_{name}", (*_hccl_names(), *_hccl(recording, step)))
            write_json_array(timeline / f"task_time_{name}", (*_hardware_names(), *_tasks(recording, step)))
            write_json_array(timeline / f"msprof_{name}", _whole(recording, index))
        return timeline / f"msprof_{device}_{MODEL}_{recording.steps.number[-1]}.json"

    def finish(self) -> None:
        """There are no files of the whole cluster."""


def _write_identity(recording: Recording, root: Path, device: int) -> None:
    cluster, rank = recording.cluster, recording.rank
    start, end = int(recording.steps.start[0]) // 1000, int(recording.steps.end[-1]) // 1000
    info = {
        "jobInfo": "NA",
        "version": "1.0",
        "hostname": cluster.host_name(rank),
        "devices": str(device),
        "DeviceInfo": [
            {
                "id": device,
                "ai_core_num": 24,
                "aiv_num": 48,
                "hwts_frequency": "100",
                "aic_frequency": str(NOMINAL_MHZ),
                "aiv_frequency": str(NOMINAL_MHZ),
            }
        ],
        "platform_version": "5",
        "pid": str(10_000 + rank),
        "rank_id": rank,
        "pid_name": "python",
    }
    write_compact_json(root / f"info.json.{device}", info)
    monotonic = str(round(boot_micros(recording, int(recording.steps.start[0])) * 1000))
    write_compact_json(
        root / f"start_info.{device}", {"collectionTimeBegin": str(start), "clockMonotonicRaw": monotonic}
    )
    write_compact_json(root / f"end_info.{device}", {"collectionTimeEnd": str(end)})
    for name in (f"info.json.{device}", f"start_info.{device}", f"end_info.{device}"):
        write_text(root / f"{name}.done", f"filesize:{(root / name).stat().st_size}")


def _whole(recording: Recording, index: int) -> Iterator[str]:
    """msprof_*.json: hardware, communication and overlap of one iteration in one file."""
    step = int(recording.steps.number[index])
    yield from _hardware_names()
    yield _name("thread_name", HARDWARE, 10036, f"Step Trace(Model ID:{MODEL})")
    yield from _iteration(recording, index, HARDWARE)
    yield from _tasks(recording, step)
    yield from _hccl_names()
    yield from _hccl(recording, step)
    yield from _overlap(recording, index)


def _step_trace(recording: Recording) -> Iterator[str]:
    """All iterations; every file of this kind contains all of them."""
    yield _name("process_name", 10036, 0, "Step Trace")
    yield _name("thread_name", 10036, 10036, f"Model ID:{MODEL}")
    for index in range(len(recording.steps.number)):
        yield from _iteration(recording, index, 10036)


def _iteration(recording: Recording, index: int, pid: int) -> Iterator[str]:
    """An iteration begins when its batch is loaded; the time since the last iteration is its Data_aug Bound."""
    steps = recording.steps
    number = int(steps.number[index])
    first, backward, end = (int(column[index]) for column in (steps.ready, steps.backward_end, steps.end))
    fp, bp, done = (boot_micros(recording, time) for time in (first, backward, end))
    where = f'"pid": {pid}, "tid": 10036'
    arguments = f'"Iteration ID": {number}, "FP Start": {fp}, "BP End": {bp}'
    yield (
        f'{{"name": "Iteration {number}", {where}, "ts": {fp}, "dur": {(end - first) / 1000}, "args": {{{arguments}, '
        f'"Iteration End": {done}, "Iteration Time(ns)": {float(end - first)}}}, "cat": "Iteration Time", "ph": "X"}}'
    )
    yield (
        f'{{"name": "FP_BP Time {number}", {where}, "ts": {fp}, "dur": {(backward - first) / 1000}, "args": {{{arguments}, '
        f'"FP_BP Time(ns)": {float(backward - first)}}}, "cat": "FP_BP Time", "ph": "X"}}'
    )
    yield (
        f'{{"name": "Iteration Refresh {number}", {where}, "ts": {bp}, "dur": {(end - backward) / 1000}, "args": '
        f'{{"Iteration ID": {number}, "BP End": {bp}, "Iteration End": {done}, "Iteration Refresh(ns)": '
        f'{float(end - backward)}}}, "cat": "Iteration Refresh", "ph": "X"}}'
    )
    bound = int(steps.ready[index] - steps.start[index]) if index else 0
    head = f'"name": "Data_aug Bound {number}", "cat": "Data_aug Bound", {where}, "id": "Data_aug Bound {number}"'
    yield f'{{{head}, "ph": "s", "ts": {done}, "args": {{"Iteration ID": {number}}}}}'
    after = boot_micros(recording, end + bound)
    yield f'{{{head}, "ph": "t", "ts": {after}, "args": {{"Data_aug Bound(us)": {bound / 1000}}}}}'


def _tasks(recording: Recording, step: int) -> Iterator[str]:
    kernels = recording.kernels.of(step)
    names = [
        (f"Default/{kernel_name(recording, number)}", "AI_CPU" if kernel.core == CPU else "AI_CORE")
        for number, kernel in enumerate(recording.program.kernels)
    ]
    rows = zip(kernels.template.tolist(), kernels.start.tolist(), kernels.duration.tolist(), strict=True)
    for template, start, duration in rows:
        name, kind = names[template]
        cycles = f'"Aicore Time(ms)": {duration / 1e6}, "Total Cycle": {duration * 18 // 10}'
        if kind == "AI_CPU":
            cycles = '"Aicore Time(ms)": "N/A", "Total Cycle": "N/A"'
        yield (
            f'{{"name": "{name}", "pid": {HARDWARE}, "tid": {COMPUTE_STREAM}, "ts": {boot_micros(recording, start)}, '
            f'"dur": {duration / 1000}, "args": {{"Task Type": "{kind}", "Stream Id": {COMPUTE_STREAM}, '
            f'"Task Id": {template + 1}, "Batch Id": 0, {cycles}}}, "ph": "X"}}'
        )


def _hccl(recording: Recording, step: int) -> Iterator[str]:
    """Operators on one thread, their tasks on planes; task types have underscores."""
    streams = list(STREAMS.values())
    for comm_op in comm_ops_of(recording, step):
        op, axis = comm_op.route.op, comm_op.route.message.axis
        stream = STREAMS[op if op in STREAMS else axis]
        name = graph_name(recording, comm_op.message)
        yield (
            f'{{"name": "Default/{name}_0", "pid": {HCCL}, "tid": {KERNELS}, '
            f'"ts": {boot_micros(recording, comm_op.start)}, "dur": {comm_op.duration / 1000}, "ph": "X"}}'
        )
        for number, (task, start, duration, source, target, kind, size) in enumerate(hccl_tasks(comm_op), start=1):
            task_name = task.replace(" ", "_")
            rate = round(size / duration, 6) if size else 0.0
            yield (
                f'{{"name": "{task_name}", "pid": {HCCL}, "tid": {streams.index(stream)}, '
                f'"ts": {boot_micros(recording, start)}, "dur": {duration / 1000}, "args": {{"notify_id": 0, '
                f'"duration estimated(us)": {duration / 1000}, "stream id": {stream}, "task id": {number}, '
                f'"task type": "{task_name}", "src rank": {source}, "dst rank": {target}, "transport type": "{kind}", '
                f'"size(Byte)": {size or 0}, "data type": "FP16", "link type": "{LINK_TYPES[kind]}", '
                f'"bandwidth(GB/s)": {rate}}}, "ph": "X"}}'
            )


def _overlap(recording: Recording, index: int) -> Iterator[str]:
    yield _name("process_name", OVERLAP, 0, "Overlap Analysis")
    step, steps = int(recording.steps.number[index]), recording.steps
    computing, communicating = recording.computing(step), recording.communicating(step)
    # before the first iteration nothing was recorded
    begin = (steps.start if index else steps.ready)[index : index + 1]
    whole = union(begin, steps.end[index : index + 1] - begin)
    lanes = {
        "Computing": computing,
        "Communication": communicating,
        "Communication(Not Overlapped)": communicating - computing,
        "Free": whole - computing - communicating,
    }
    for tid, (name, lane) in enumerate(lanes.items()):
        yield _name("thread_name", OVERLAP, tid, name)
        for start, end in zip(lane.starts.tolist(), lane.ends.tolist(), strict=True):
            yield (
                f'{{"name": "{name}", "pid": {OVERLAP}, "tid": {tid}, "ts": {boot_micros(recording, start)}, '
                f'"dur": {(end - start) / 1000}, "ph": "X"}}'
            )


def _hardware_names() -> Iterator[str]:
    yield _name("process_name", HARDWARE, 0, "Ascend Hardware")
    yield _name("thread_name", HARDWARE, COMPUTE_STREAM, f"Stream {COMPUTE_STREAM}")


def _hccl_names() -> Iterator[str]:
    yield _name("process_name", HCCL, 0, "HCCL")
    for plane in range(len(STREAMS)):
        yield _name("thread_name", HCCL, plane, f"Plane {plane}")
    yield _name("thread_name", HCCL, KERNELS, "Communication Kernel")


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return f'{{"name": "{kind}", "pid": {pid}, "tid": {tid}, "args": {{"name": "{name}"}}, "ph": "M"}}'
