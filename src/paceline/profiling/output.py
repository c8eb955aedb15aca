"""Where a recording lands: the documented directory and file names, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from paceline.profiling.options import Options
from paceline.profiling.recorder.identity import Identity

LONGEST_WORKER_NAME = 225


@dataclass(frozen=True)
class Order:
    """One recording to be made."""

    directory: Path
    options: Options
    identity: Identity
    worker: str | None = None
    analyse: bool = True
    asynchronous: bool = False
    schedule: Mapping[str, int] | None = None

    @property
    def rank(self) -> int:
        return self.identity.rank


@dataclass(frozen=True)
class StepSpan:
    """When a recorded step began and ended, in nanoseconds of the system's clock."""

    step: int
    start: int
    end: int


def recording_directory(order: Order, suffix: str) -> Path:
    """`{worker}_{pid}_{UTC time to the millisecond}_ascend_ms` (or _pt), new each time."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:-3]
    return order.directory / f"{order.worker or order.identity.host}_{os.getpid()}_{now}_ascend_{suffix}"


def write_json(path: Path, content: object, *, durable: bool = True) -> None:
    """Beside, synced, renamed: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = part_of(path)
    with beside.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=4)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(beside, path)


def part_of(path: Path) -> Path:
    """A name for the file while it is written; containers on a shared directory may all have the same pid."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")


def describe(recording: Path, order: Order, backend: str, *, version: str, spans: list[StepSpan]) -> None:
    """profiler_info_{rank}.json with MindSpore's keys, where the framework has not written one."""
    path = recording / f"profiler_info_{order.rank}.json"
    if path.exists():
        return
    parameters = {"is_set_schedule": order.schedule is not None, **order.options.plain()}
    content = {
        "profiler_parameters": {**parameters, "schedule": dict(order.schedule or {"wait": 0, "active": 1})},
        "ms_profiler_info": {"rank_id": order.rank, "device_id": order.identity.device or 0},
        "cann_profiler_info": {},
        "analysis_cost_time": {},
        "ms_version": version if backend == "mindspore" else "",
        "cann_version": "",
        "jit_level": "",
        "paceline": {
            "backend": backend,
            "framework_version": version,
            "steps": [{"step": span.step, "start_ns": span.start, "end_ns": span.end} for span in spans],
        },
    }
    write_json(path, content)


def add_metadata(recording: Path, metadata: Mapping[str, object]) -> None:
    """profiler_metadata.json: the user's keys beside what the framework wrote of its groups."""
    if not metadata:
        return
    path = recording / "profiler_metadata.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, {**known, **metadata})


def add_steps(trace_view: Path, spans: list[StepSpan]) -> None:
    """ProfilerStep#N events into a timeline without them (MindSpore writes none on CPU); the rest stays as it is."""
    text = trace_view.read_text(encoding="utf-8").rstrip()
    if not spans or "ProfilerStep#" in text or not text.endswith("]"):
        return
    separator = "" if re.fullmatch(r"\[\s*\]", text) else ","
    events = ",".join(json.dumps(_step_event(span)) for span in spans)
    name = '{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"Steps"}}'
    beside = part_of(trace_view)
    beside.write_text(f"{text[:-1]}{separator}{name},{events}]", encoding="utf-8")
    os.replace(beside, trace_view)


def _step_event(span: StepSpan) -> dict[str, object]:
    def microseconds(nanoseconds: int) -> str:
        return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"

    return {
        "name": f"ProfilerStep#{span.step}",
        "ph": "X",
        "pid": 0,
        "tid": 0,
        "cat": "",
        "ts": microseconds(span.start),
        "dur": microseconds(span.end - span.start),
        "args": {},
    }
