"""The CSV files of an Ascend profiler's output directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from paceline.simulate.compute_times import LAUNCH_GAP
from paceline.simulate.layouts.ascend_communication import comm_ops_of
from paceline.simulate.layouts.ascend_names import HCOM, micros, shapes
from paceline.simulate.layouts.dialect import Dialect
from paceline.simulate.memory import DRIVER, MemorySamples, memory_of
from paceline.simulate.model import CPU, VECTOR, Kernel
from paceline.simulate.recording import Recording

MODEL_ID = 4294967295
COMPUTE_STREAM = 2
STREAM_POINTER = 897357296

PMU = (
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_scalar_time(us),aic_scalar_ratio,"
    "aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,aic_fixpipe_time(us),aic_fixpipe_ratio,"
    "aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),"
    "aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,"
    "cube_utilization(%)"
)


def step_trace_time(recording: Recording, dialect: Dialect) -> str:
    """Microseconds; Stage = step − Bubble."""
    steps = recording.steps
    header = (
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing"
    )
    columns = (
        steps.computing,
        steps.exposed,
        steps.overlapped,
        steps.communication,
        steps.free,
        steps.duration - steps.bubble,
        steps.bubble,
        steps.exposed - steps.bubble,
        steps.first_work - steps.start,
    )
    rows = zip(steps.number.tolist(), *((column / 1000).tolist() for column in columns), strict=True)
    return _lines(header, (",".join(map(str, row)) for row in rows), dialect.line_end)


def kernel_details(recording: Recording, dialect: Dialect) -> str:
    """All kernels and communication operators, in time order; start times end with a TAB as in real files."""
    state, block = "OP State," if dialect.has_state else "", dialect.block_column
    header = (
        f"{dialect.step_column},Model ID,Task ID,Stream ID,Name,Type,{state}Accelerator Core,Start Time(us),"
        f"Duration(us),Wait Time(us),{block},Mix {block},HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
        f"Output Shapes,Output Data Types,Output Formats,Context ID,{PMU}"
    )
    rows = [*_kernel_rows(recording, dialect), *_communication_rows(recording, dialect)]
    rows.sort(key=lambda row: row[0])
    return _lines(header, (text for _, text in rows), dialect.line_end)


def _kernel_rows(recording: Recording, dialect: Dialect) -> Iterator[tuple[int, str]]:
    kernels = recording.kernels
    constant: dict[tuple[int, float], tuple[str, str, bool | None]] = {}
    columns = (kernels.step, kernels.template, kernels.start, kernels.duration, kernels.wait)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for task, (step, template, start, duration, wait) in enumerate(rows, start=1):
        load = recording.load(template, step)
        if (template, load) not in constant:
            kernel = recording.program.kernels[template].loaded(load)
            constant[(template, load)] = _constant_part(kernel, template, dialect)
        name, shape, vector = constant[(template, load)]
        yield (
            start,
            (
                f"{step},{MODEL_ID},{task % 65536},{COMPUTE_STREAM},{name},{micros(start)}\t,{duration / 1000},"
                f"{wait / 1000},{shape},{_pmu(duration, vector)}"
            ),
        )


def _constant_part(kernel: Kernel, number: int, dialect: Dialect) -> tuple[str, str, bool | None]:
    """(name … core, blocks … context, runs on vector cores or None for the CPU)."""
    state = "dynamic," if dialect.has_state else ""
    name = dialect.kernel_name(kernel, number)
    inputs, outputs = len(kernel.inputs), len(kernel.outputs)
    vector = None if kernel.core == CPU else kernel.core == VECTOR
    return (
        f"{name},{kernel.type},{state}{kernel.core}",
        f'{40 if vector else 20},0,NO,"""{shapes(kernel.inputs)}""",{";".join(["FLOAT16"] * inputs)},'
        f'{";".join(["ND"] * inputs)},"""{shapes(kernel.outputs)}""",{";".join(["FLOAT16"] * outputs)},'
        f"{';'.join(['ND'] * outputs)},N/A",
        vector,
    )


_NO_CUBE = "0.0,0," + ",".join(["0.0"] * 11)
_NO_VECTOR = "0.0,0," + ",".join(["0.0"] * 9)


def _pmu(duration: int, vector: bool | None) -> str:
    """Plausible pipe times: 24 counters and the cube utilisation."""
    if vector is None:
        return ",".join(["N/A"] * 25)
    time = duration / 1000
    cycles = duration * 18 // 10
    if vector:
        used = round(0.6 * time, 3)
        return f"{_NO_CUBE},{time},{cycles},{used},0.6,0.0,0.0,{used},0.6,0.0,0.0,0.001,0"
    used = round(0.75 * time, 3)
    return f"{time},{cycles},{used},0.75,0.0,0.0,0.0,0.0,{used},0.75,0.0,0.0,0.001,{_NO_VECTOR},75.0"


def _communication_rows(recording: Recording, dialect: Dialect) -> Iterator[tuple[int, str]]:
    state = "N/A," if dialect.has_state else ""
    tail = ",".join(["N/A"] * (9 + 25))
    for step in recording.steps.number.tolist():
        for comm_op in comm_ops_of(recording, step):
            yield (
                comm_op.start,
                (
                    f"{step},{MODEL_ID},N/A,N/A,{comm_op.name},hcom_{HCOM[comm_op.route.op]}_,{state}COMMUNICATION,"
                    f"{micros(comm_op.start)}\t,{comm_op.duration / 1000},0,0,{tail}"
                ),
            )


def op_statistic(recording: Recording) -> str:
    """Kernels summed up by type and core over the whole recording."""
    header = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
    templates, durations = recording.kernels.template, recording.kernels.duration
    kinds = sorted({(kernel.type, kernel.core) for kernel in recording.program.kernels})
    number = {kind: position for position, kind in enumerate(kinds)}
    kind_of = np.array([number[(kernel.type, kernel.core)] for kernel in recording.program.kernels])[templates]
    total = max(int(durations.sum()), 1)
    rows = []
    for position, (type, core) in enumerate(kinds):
        mine = durations[kind_of == position]
        if len(mine):
            rows.append(
                (
                    int(mine.sum()),
                    f"{type},{core},{len(mine)},{mine.sum() / 1000},{mine.min() / 1000},{round(mine.mean() / 1000, 3)},"
                    f"{mine.max() / 1000},{round(100 * mine.sum() / total, 3)}",
                )
            )
    return _lines(header, (text for _, text in sorted(rows, reverse=True)), "\n")


def api_statistic(recording: Recording) -> str:
    """Host calls: one launch per kernel, one call per collective, and the calls of memory pressure."""
    calls: dict[tuple[str, str], list[int]] = {("node", "launch"): (recording.kernels.wait // 2).tolist()}
    for step in recording.steps.number.tolist():
        for name, _, duration in (*recording.memory_calls(step), *collective_calls(recording, step)):
            calls.setdefault(("acl", name), []).append(duration)
    rows = (
        f"{level},{name},{sum(times) / 1000},{len(times)},{round(sum(times) / len(times) / 1000, 3)},"
        f"{min(times) / 1000},{max(times) / 1000},{round(float(np.var(np.array(times) / 1000)), 3)}"
        for (level, name), times in calls.items()
    )
    return _lines("Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance", rows, "\n")


def collective_calls(recording: Recording, step: int) -> Iterator[tuple[str, int, int]]:
    """(API, start, duration) of the host launching each communication operator, just before it begins."""
    duration = int(LAUNCH_GAP)
    for comm_op in comm_ops_of(recording, step):
        yield f"hcom_{HCOM[comm_op.route.op]}_", comm_op.start - duration, duration


def memory_record(recording: Recording, dialect: Dialect) -> str:
    """Memory of the process as the driver reports it (APP), and of the framework's allocator."""
    pointer, value, empty = (",Stream Ptr", f",{STREAM_POINTER}", ",") if dialect.has_stream_pointer else ("", "", "")
    header = f"Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB){pointer},Device Type"
    samples, device = memory_of(recording), f"NPU:{recording.cluster.device(recording.rank)}"
    unit, rows = dialect.megabyte, []
    for time, allocated, reserved in _samples(samples):
        rows.append(f"APP,{micros(time)}\t,,{(reserved + DRIVER) / unit},{empty},{device}")
        held = f"{allocated / unit},{reserved / unit},{allocated / unit}"
        rows.append(f"{dialect.allocator},{micros(time)}\t,{held}{value},{device}")
    return _lines(header, rows, dialect.line_end)


def operator_memory(recording: Recording, dialect: Dialect) -> str:
    """One allocation per sample while memory rises, released at the mirrored sample of the same step."""
    header = (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
        "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),"
        "Release Total Allocated(MB),Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type"
    )
    device, unit = f"NPU:{recording.cluster.device(recording.rank)}", dialect.megabyte
    rows = (
        f"aten::empty,{size / 1024},{micros(start)}\t,{micros(end)}\t,{micros(end)}\t,{micros(end - start)}\t,"
        f"{micros(end - start)}\t,{before / unit},{reserved / unit},{before / unit},{after / unit},{reserved / unit},"
        f"{after / unit},{STREAM_POINTER},{device}"
        for size, start, end, before, after, reserved in allocations(recording)
    )
    return _lines(header, rows, dialect.line_end)


def allocations(recording: Recording) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(size, allocated at, released at, total after allocation, total after release, reserved)."""
    samples, per_step = memory_of(recording), _per_step(recording)
    rows = list(_samples(samples))
    for first in range(0, len(rows), per_step):
        for rise in range(per_step // 4):
            time, allocated, reserved = rows[first + rise]
            released, after, _ = rows[first + per_step - 1 - rise]
            below = rows[first + rise - 1][1] if rise else allocated - 512
            yield max(512, allocated - below), time, released, allocated, after, reserved


def _per_step(recording: Recording) -> int:
    return len(memory_of(recording).time) // max(1, len(recording.steps.number))


def npu_module_mem(recording: Recording) -> str:
    device = f"NPU:{recording.cluster.device(recording.rank)}"
    samples = memory_of(recording)
    rows = (
        f"{component},{micros(time)}\t,{size},{device}"
        for component, size in (("HCCL", 204.0), ("RUNTIME", 48.0), ("SLOG", 0.0))
        for time in samples.time[::10].tolist()
    )
    return _lines("Component,Timestamp(us),Total Reserved(MB),Device", rows, "\n")


def l2_cache(recording: Recording) -> str:
    """One row per kernel of the first step; rates as fractions."""
    rows = (
        f"{COMPUTE_STREAM},{number + 1},{round(0.70 + 0.001 * (number % 97), 6)},0.05,{kernel.name}"
        for number, kernel in enumerate(recording.program.kernels)
    )
    return _lines("Stream Id,Task Id,Hit Rate,Victim Rate,Op Name", rows, "\n")


def _samples(samples: MemorySamples) -> Iterator[tuple[int, int, int]]:
    return zip(samples.time.tolist(), samples.allocated.tolist(), samples.reserved.tolist(), strict=True)


def _lines(header: str, rows: Iterable[str], end: str) -> str:
    return end.join([header, *rows, ""])
