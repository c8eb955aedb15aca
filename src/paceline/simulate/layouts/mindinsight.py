"""MindInsight's profiler directories: r1.4 to r2.3 (flat), r1.3 (a tree of hosts with a rank table), r2.1 units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from paceline.simulate.cluster import Cluster
from paceline.simulate.layouts import minddata
from paceline.simulate.layouts.ascend_text import write_json_array, write_text
from paceline.simulate.layouts.layout import has_detail_files
from paceline.simulate.layouts.mindspore_hccl import NEW, OLD, OLDEST, Generation, hccl_raw
from paceline.simulate.layouts.mindspore_steps import boot_micros, cluster_analyse, parallel_mode, step_trace
from paceline.simulate.layouts.mindspore_timeline import COMPUTE_STREAM, kernel_name, timeline
from paceline.simulate.memory import CAPACITY, memory_of, static_bytes
from paceline.simulate.model import CPU, PEAK_RATE
from paceline.simulate.recording import Recording

GIBIBYTE = 1 << 30


class MindInsight:
    """run/profiler/…_{rank}.…: all ranks in one directory."""

    generation: Generation = OLD
    split_flops = False

    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        self.out = out

    def directory(self, rank: int) -> Path:
        return self.out / "profiler"

    def key(self, rank: int) -> int:
        """Suffix of the file names."""
        return rank

    def write(self, recording: Recording) -> Path:
        root, key = self.directory(recording.rank), self.key(recording.rank)
        root.mkdir(parents=True, exist_ok=True)
        write_text(root / f"step_trace_raw_{key}_detail_time.csv", step_trace(recording))
        write_text(root / f"hccl_raw_{key}.csv", hccl_raw(recording, self.generation))
        self._write_identity(recording, root, key)
        self._write_resources(recording, root, key)
        self._write_input(recording, root, key)
        if has_detail_files(recording):
            write_text(root / f"framework_raw_{key}.csv", framework(recording))
            write_text(root / f"output_timeline_data_{key}.txt", timeline_data(recording))
            write_json_array(root / f"ascend_timeline_display_{key}.json", timeline(recording))
        return root / f"hccl_raw_{key}.csv"

    def finish(self) -> None:
        """There are no files of the whole cluster."""

    def _write_identity(self, recording: Recording, root: Path, key: int) -> None:
        spec = self.cluster.spec
        mode = parallel_mode(recording)
        write_text(root / f"ascend_cluster_analyse_{mode}_{spec.pp}_{spec.world}_{key}.csv", cluster_analyse(recording))
        info = {
            "context_mode": "graph",
            "rank_id": str(recording.rank),
            "rank_size": spec.world,
            "parallel_mode": "semi_auto_parallel",
            "stage_num": spec.pp,
            "profiling_stop_time": "2025-11-15 12:10:00",
            "graph_ids": [0],
            "analyse_end_time": "2025-11-15 12:11:00",
            "ms_version": "2.0.0",
        }
        write_compact_json(root / f"profiler_info_{key}.json", info)
        first = kernel_name(recording, 0)
        write_compact_json(
            root / f"step_trace_point_info_{key}.json", {"fp_start": f"Default/{first}", "bp_end": "Default/Cast-op9"}
        )

    def _write_resources(self, recording: Recording, root: Path, key: int) -> None:
        write_compact_json(root / f"memory_usage_summary_{key}.json", memory_summary(recording))
        write_compact_json(root / f"flops_summary_{key}.json", flops_summary(recording, split=self.split_flops))
        write_text(root / f"flops_{key}.txt", flops(recording))
        write_text(root / f"aicore_intermediate_{key}_type.csv", operator_types(recording))
        write_text(root / f"aicore_intermediate_{key}_detail.csv", operator_details(recording))
        write_text(root / f"aicpu_intermediate_{key}.csv", cpu_operators(recording))

    def _write_input(self, recording: Recording, root: Path, key: int) -> None:
        write_compact_json(root / f"pipeline_profiling_{key}.json", minddata.pipeline_profiling(recording))
        write_text(root / f"minddata_pipeline_raw_{key}.csv", minddata.pipeline_raw(recording))
        write_compact_json(root / f"minddata_cpu_utilization_{key}.json", minddata.cpu_utilization(recording))
        write_text(root / f"device_queue_profiling_{key}.txt", minddata.device_queue(recording))
        first = boot_micros(recording, int(recording.steps.start[0]))
        write_text(root / f"minddata_aicpu_{key}.txt", minddata.dequeue_waits(recording, first))


class MindInsightR21(MindInsight):
    """Since r2.1 hccl_raw has costs in µs and SDMA bandwidth in GB/s, and FLOPs are split by unit."""

    generation = NEW
    split_flops = True


class MindInsightR13(MindInsight):
    """run/cluster_profiler/<host>/profiler/…_{device}.…, a rank table, and a list that hides the hosts' addresses."""

    generation = OLDEST

    def directory(self, rank: int) -> Path:
        return self.out / "cluster_profiler" / str(self.cluster.host(rank) + 1) / "profiler"

    def key(self, rank: int) -> int:
        return self.cluster.device(rank)

    def _write_identity(self, recording: Recording, root: Path, key: int) -> None:
        """Neither profiler_info nor cluster_analyse existed yet."""

    def finish(self) -> None:
        spec, cluster = self.cluster.spec, self.cluster
        firsts = [host * spec.devices for host in range(spec.hosts)]
        servers = [
            {
                "server_id": cluster.host_address(first),
                "device": [
                    {
                        "device_id": str(device),
                        "device_ip": f"192.{device + 1}.27.{host + 6}",
                        "rank_id": str(first + device),
                    }
                    for device in range(spec.devices)
                ],
                "host_nic_ip": "reserve",
            }
            for host, first in enumerate(firsts)
        ]
        table = {"version": "1.0", "server_count": str(spec.hosts), "server_list": servers, "status": "completed"}
        write_compact_json(self.out / "hccl.json", table)
        lines = "".join(f"{cluster.host_address(first)} {host + 1}\n" for host, first in enumerate(firsts))
        write_text(self.out / "host_ips_mapping.txt", lines)


def write_compact_json(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.encode(value))


def memory_summary(recording: Recording) -> dict[str, float]:
    """GiB; the graph's planned memory, not measured."""
    samples = memory_of(recording)
    return {
        "capacity": CAPACITY / GIBIBYTE,
        "allocations": len(recording.program.kernels),
        "deallocations": len(recording.program.kernels),
        "peak_mem": samples.peak / GIBIBYTE,
        "static_mem": static_bytes(recording) / GIBIBYTE,
    }


def _per_step(recording: Recording) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Mean time of each kernel of the program, ns."""
    count = len(recording.program.kernels)
    sums = np.bincount(recording.kernels.template, weights=recording.kernels.duration, minlength=count)
    return sums / max(1, len(recording.steps.number))


def flops_summary(recording: Recording, *, split: bool) -> dict[str, float]:
    """MFLOP per step, GFLOP/s, percent of the peak."""
    times = _per_step(recording)
    amounts = np.array([kernel.flops for kernel in recording.program.kernels])
    cube = np.array([kernel.core not in (CPU, "AI_VECTOR_CORE") for kernel in recording.program.kernels])
    total, time = float(amounts.sum()), float(times.sum())
    if not split:
        return {"FLOPs": total / 1e6, "FLOPS": total / time, "FLOPS_Utilization": 100 * total / time / PEAK_RATE}
    parts = {"cube": cube, "vec": ~cube}
    columns: dict[str, float] = {}
    for name, chosen in parts.items():
        work, span = float(amounts[chosen].sum()), max(float(times[chosen].sum()), 1.0)
        columns |= {f"{name}_FLOPs": work / 1e6, f"{name}_FLOPS": work / span}
        columns[f"{name}_FLOPS_Utilization"] = 100 * work / span / PEAK_RATE
    return columns


def flops(recording: Recording) -> str:
    rows = (
        f"Default/{kernel_name(recording, number)}, {kernel.flops / 1e6}, {round(kernel.flops / time, 3)}, "
        f"{round(100 * kernel.flops / time / PEAK_RATE, 3)}"
        for number, (kernel, time) in enumerate(zip(recording.program.kernels, _per_step(recording), strict=True))
    )
    return "\n".join(["op_full_name, MFLOPs(10^6), GFLOPS(10^9), FLOPS utilization(%)", *rows, ""])


def operator_types(recording: Recording) -> str:
    """Milliseconds per step by type; percent as a percentage, as in older versions."""
    sums: dict[str, tuple[float, int]] = {}
    for kernel, time in zip(recording.program.kernels, _per_step(recording).tolist(), strict=True):
        if kernel.core != CPU:
            before, count = sums.get(kernel.type, (0.0, 0))
            sums[kernel.type] = (before + time, count + 1)
    whole = sum(time for time, _ in sums.values())
    rows = (
        f"{type},{round(time / 1e6, 6)},{count},{round(100 * time / whole, 2)}" for type, (time, count) in sums.items()
    )
    return "\n".join(["kernel_type,total_time,execution_frequency,percent", *rows, ""])


def operator_details(recording: Recording) -> str:
    steps = len(recording.steps.number)
    rows = (
        f"Default/{kernel_name(recording, number)},{round(time / 1e6, 6)},{steps}"
        for number, time in enumerate(_per_step(recording).tolist())
        if recording.program.kernels[number].core != CPU
    )
    return "\n".join(["full_kernel_name,execution_time,execution_frequency", *rows, ""])


def cpu_operators(recording: Recording) -> str:
    """Executions on the AI CPU: times in ms, run_start and run_end in µs."""
    return "\n".join(
        [
            "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end",
            *(f"{number},{row}" for number, row in enumerate(_cpu_rows(recording), start=1)),
            "",
        ]
    )


def _cpu_rows(recording: Recording) -> Iterator[str]:
    kernels = recording.kernels
    on_cpu = np.array([kernel.core == CPU for kernel in recording.program.kernels])[kernels.template]
    chosen = (kernels.template[on_cpu], kernels.start[on_cpu], kernels.duration[on_cpu])
    for template, start, duration in zip(*(column.tolist() for column in chosen), strict=True):
        begin, time = boot_micros(recording, start), duration / 1e6
        kind = recording.program.kernels[template].type
        yield f"{kind},{time},0.0,{time},{round(begin)},{round(begin + duration / 1000)}"


def framework(recording: Recording) -> str:
    """Type, block and shapes of each operator of the graph."""
    rows = []
    for number, kernel in enumerate(recording.program.kernels):
        name = kernel_name(recording, number)
        tensors = [
            *((f"input_{i}", shape) for i, shape in enumerate(kernel.inputs)),
            *((f"output_{i}", shape) for i, shape in enumerate(kernel.outputs)),
        ]
        attributes = ", ".join(
            f'""{which}"": {{""format"": ""DefaultFormat"", ""data_type"": ""FLOAT16"", ""shape"": {list(shape)}}}'
            for which, shape in tensors
        )
        rows.append(
            f"{number + 1},{COMPUTE_STREAM},32,Default/{name},Default/{name},{name},{kernel.type},Default,"
            f'"{{{attributes}}}",1'
        )
    header = "task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,op_info,graph_id"
    return "\n".join([header, *rows, ""])


def timeline_data(recording: Recording) -> str:
    """Every kernel: name, stream, start and duration in ms of the card's counter."""
    names = [f"Default/{kernel_name(recording, number)}" for number in range(len(recording.program.kernels))]
    kernels = recording.kernels
    rows = zip(kernels.template.tolist(), kernels.start.tolist(), kernels.duration.tolist(), strict=True)
    lines = (
        f"{names[template]},{COMPUTE_STREAM},{boot_micros(recording, start) / 1000:.5f},{duration / 1e6:.5f}"
        for template, start, duration in rows
    )
    return "\n".join(["op_name, stream_id, start_time(ms), duration(ms)", *lines, ""])
