"""MindSpore's data pipeline: operators, their queues, and the device's wait for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.simulate.recording import Recording

CAPACITY = 16
SAMPLE_INTERVAL = 10  # ms
LATE = 10_000_000  # ns: from this wait on the pipeline is too slow


@dataclass(frozen=True)
class Stage:
    """A dataset operator; number 0 is the last one before the device and has no queue."""

    id: int
    type: str
    workers: int
    sizes: tuple[int, ...]  # of the output queue, sampled
    cpu: int  # percent

    @property
    def mean(self) -> float:
        return sum(self.sizes) / len(self.sizes) if self.sizes else 0.0


def late(recording: Recording) -> bool:
    return int((recording.steps.ready - recording.steps.start).mean()) > LATE


def stages(recording: Recording) -> tuple[Stage, ...]:
    """In a slow pipeline queues are full before the slowest operator (Map) and empty after it."""
    count = max(3, 3 * len(recording.steps.number))
    full = tuple(CAPACITY - number % 2 for number in range(count))
    behind = (0,) * count if late(recording) else full
    return (
        Stage(0, "DeviceQueue", 1, (), 1),
        Stage(1, "Batch", 2, behind, 8),
        Stage(2, "Map", 4, behind, 380 if late(recording) else 60),
        Stage(3, "Generator", 1, full, 20),
    )


def pipeline_raw(recording: Recording) -> str:
    """minddata_pipeline_raw_{rank}.csv"""
    rows = []
    for stage in stages(recording):
        parent = "" if stage.id == 0 else str(stage.id - 1)
        children = f"[{stage.id + 1}]" if stage.id < 3 else ""
        sizes = f'"{list(stage.sizes)}",{stage.mean},{CAPACITY},{stage.mean / CAPACITY}' if stage.sizes else ",,,"
        rows.append(f"{stage.id},{stage.type},{stage.workers},{sizes},{SAMPLE_INTERVAL},{parent},{children}")
    header = (
        "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length,"
        "output_queue_usage_rate,sample_interval,parent_id,children_id"
    )
    return "\n".join([header, *rows, ""])


def pipeline_profiling(recording: Recording) -> dict[str, object]:
    """pipeline_profiling_{rank}.json"""
    operators: list[dict[str, object]] = []
    for stage in stages(recording):
        queue = {"output_queue": {"length": CAPACITY, "size": list(stage.sizes)}} if stage.sizes else None
        children = {"children": [stage.id + 1]} if stage.id < 3 else {}
        operators.append(
            {
                **children,
                "metrics": queue,
                "num_workers": stage.workers,
                "op_id": stage.id,
                "op_type": f"{stage.type}Op",
            }
        )
    return {"op_info": operators, "sampling_interval": SAMPLE_INTERVAL}


def cpu_utilization(recording: Recording) -> dict[str, object]:
    """minddata_cpu_utilization_{rank}.json"""
    samples = 3 * len(recording.steps.number)
    busy = {"user_utilization": [40] * samples, "sys_utilization": [5] * samples}
    device = {
        **busy,
        "io_utilization": [0] * samples,
        "idle_utilization": [55] * samples,
        "runable_processes": [12] * samples,
        "context_switch_count": [24000] * samples,
    }
    operators = [
        {"metrics": {"user_utilization": [stage.cpu] * samples, "sys_utilization": [0] * samples}, "op_id": stage.id}
        for stage in stages(recording)
    ]
    start = int(recording.steps.start[0]) // 1_000_000
    return {
        "sampling_interval": SAMPLE_INTERVAL,
        "cpu_processor_num": 192,
        "time_stamp": [start + SAMPLE_INTERVAL * number for number in range(samples)],
        "device_info": device,
        "process_info": busy,
        "op_info": operators,
    }


def summary(recording: Recording) -> dict[str, list[object]]:
    """minddata_pipeline_summary_{rank}.json; -1 where an operator has no queue."""
    found = stages(recording)
    wait = float((recording.steps.ready - recording.steps.start).mean() / 1e6)
    return {
        "op_ids": [stage.id for stage in found],
        "op_names": [stage.type for stage in found],
        "pipeline_ops": [f"{stage.type}(id={stage.id})" for stage in found],
        "num_workers": [stage.workers for stage in found],
        "queue_average_size": [round(stage.mean, 2) if stage.sizes else -1 for stage in found],
        "queue_utilization_pct": [round(100 * stage.mean / CAPACITY, 2) if stage.sizes else -1 for stage in found],
        "queue_empty_freq_pct": [
            round(100 * stage.sizes.count(0) / len(stage.sizes), 2) if stage.sizes else -1 for stage in found
        ],
        "children_ids": [[stage.id + 1] if stage.id < 3 else [] for stage in found],
        "parent_id": [stage.id - 1 for stage in found],
        "avg_cpu_pct": [float(stage.cpu) for stage in found],
        "per_pipeline_time": [round(wait, 3)],
        "per_push_queue_time": [0.0],
        "per_batch_time": [round(wait, 3)],
        "avg_cpu_pct_per_worker": [round(stage.cpu / stage.workers, 2) for stage in found],
    }


def device_queue(recording: Recording) -> str:
    """device_queue_profiling_{rank}.txt: `type sub step value time`; type 0 = ms (0 get, 1 push, 2 both), 1 = queue."""
    return "".join(_queue_lines(recording))


def _queue_lines(recording: Recording) -> Iterator[str]:
    steps, size = recording.steps, 0 if late(recording) else CAPACITY - 1
    rows = zip(steps.number.tolist(), steps.start.tolist(), steps.ready.tolist(), strict=True)
    for number, start, ready in rows:
        get, time = (ready - start) // 1_000_000, ready // 1_000_000
        yield f"0 1 {number} 0 {time}\n0 2 {number} {get} {time}\n0 0 {number} {get} {time}\n"
        yield f"1 {CAPACITY} {number} {size} {time}\n"


def dequeue_waits(recording: Recording, micros: float) -> str:
    """minddata_aicpu_{rank}.txt: name, start and end in µs (from `micros` on), queue size."""
    steps, size = recording.steps, 0 if late(recording) else CAPACITY - 1
    zero = int(steps.start[0])
    return "".join(
        f"GetNext_dequeue_wait {round(micros + (start - zero) / 1000)} {round(micros + (ready - zero) / 1000)} {size}\n"
        for start, ready in zip(steps.start.tolist(), steps.ready.tolist(), strict=True)
    )
