"""Output of a recording: the documented directory and file names, written atomically."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from paceline.profiling.options import ProfilerOptions
from paceline.recorder.identity import Identity

MAX_WORKER_NAME = 225


@dataclass(frozen=True)
class RecordingSpec:
    """What to record and where to write it."""

    directory: Path
    options: ProfilerOptions
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
    """Start and end of a recorded step, in ns of the system clock."""

    step: int
    start: int
    end: int


def recording_directory(spec: RecordingSpec, suffix: str) -> Path:
    """`{worker}_{pid}_{UTC time to the millisecond}_ascend_ms` (or _pt), new each time."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:-3]
    return spec.directory / f"{spec.worker or spec.identity.host}_{os.getpid()}_{now}_ascend_{suffix}"


def write_json(path: Path, content: object, *, durable: bool = True) -> None:
    """Write a temporary file, sync and rename it: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_path(path)
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=4)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(part, path)


def part_path(path: Path) -> Path:
    """Temporary name while the file is written; containers that share a directory may have the same pid."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")


def write_profiler_info(
    recording: Path, spec: RecordingSpec, backend: str, *, version: str, spans: list[StepSpan]
) -> None:
    """Write profiler_info_{rank}.json with MindSpore's keys, unless the framework has written one."""
    path = recording / f"profiler_info_{spec.rank}.json"
    if path.exists():
        return
    parameters = {"is_set_schedule": spec.schedule is not None, **spec.options.to_json()}
    content = {
        "profiler_parameters": {**parameters, "schedule": dict(spec.schedule or {"wait": 0, "active": 1})},
        "ms_profiler_info": {"rank_id": spec.rank, "device_id": spec.identity.device or 0},
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
    """Add the user's keys to profiler_metadata.json, which may contain the framework's groups."""
    if not metadata:
        return
    path = recording / "profiler_metadata.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, {**known, **metadata})


def add_steps(trace_view: Path, spans: list[StepSpan]) -> None:
    """Add ProfilerStep#N events to a trace without them (MindSpore writes none on CPU); nothing else changes."""
    text = trace_view.read_text(encoding="utf-8").rstrip()
    if not spans or "ProfilerStep#" in text or not text.endswith("]"):
        return
    separator = "" if re.fullmatch(r"\[\s*\]", text) else ","
    events = ",".join(json.dumps(_step_event(span)) for span in spans)
    name = '{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"Steps"}}'
    part = part_path(trace_view)
    part.write_text(f"{text[:-1]}{separator}{name},{events}]", encoding="utf-8")
    os.replace(part, trace_view)


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
