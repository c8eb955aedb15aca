"""Backend that drives torch.profiler, or torch_npu's profiler if the job has imported it.

Plain torch writes `{worker}_{pid}_{time}_ascend_pt/{worker}.{ns}.pt.trace.json` with steps as ProfilerStep#N;
torch_npu writes its own `_ascend_pt` directory.
"""

from __future__ import annotations

import inspect
import json
import mmap
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.profiling.backends.new_output_dir import find_new_directory
from paceline.profiling.options import AicoreMetrics, ProfilerActivity, ProfilerOptions
from paceline.profiling.output_files import (
    RecordingSpec,
    StepSpan,
    add_metadata,
    recording_directory,
    write_profiler_info,
)
from paceline.profiling.scheduling import ProfilerAction

_ACTIONS = {
    ProfilerAction.NONE: "NONE",
    ProfilerAction.WARM_UP: "WARMUP",
    ProfilerAction.RECORD: "RECORD",
    ProfilerAction.RECORD_AND_SAVE: "RECORD_AND_SAVE",
}


class TorchBackend:
    name = "torch"

    def __init__(self) -> None:
        self._profile: Any = None
        self._spec: RecordingSpec | None = None
        self._directory: Path | None = None
        self._action = ProfilerAction.NONE
        self._step = 0
        self._grouped = False
        """Whether torch had a process group, and so a rank, when the recording began."""

    def begin(self, spec: RecordingSpec, action: ProfilerAction, step: int) -> None:
        self._spec, self._action, self._step, self._grouped = spec, action, step, _has_group()
        spec.directory.mkdir(parents=True, exist_ok=True)
        self._directory = None if _ascend() else recording_directory(spec, "pt")
        library = _library()
        arguments = _ascend_arguments(spec) if _ascend() else _arguments(spec.options)
        self._profile = library.profile(schedule=lambda _: getattr(library.ProfilerAction, self._name()), **arguments)
        self._profile.step_num = step
        self._profile.start()

    def advance(self, action: ProfilerAction, step: int) -> None:
        self._action, self._step = action, step
        self._profile.step()

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        assert self._spec is not None
        for key, value in metadata.items():
            self._profile.add_metadata_json(key, json.dumps(value))
        if _ascend():
            # torch_npu saves without a warning only on the transition from RECORD_AND_SAVE to NONE.
            self._profile.current_action = _library().ProfilerAction.RECORD_AND_SAVE
            self._action = ProfilerAction.NONE
            self._profile.step()
        else:
            self._add_rank_metadata()
        self._profile.__exit__(None, None, None)
        recording = self._directory or find_new_directory(self._spec, "pt")
        if self._directory:
            unfinished = bool(spans) and spans[-1].step != self._step
            _export(self._profile, recording, self._spec, unfinished=self._step if unfinished else None)
        self._profile = None
        add_metadata(recording, metadata)
        write_profiler_info(recording, self._spec, self.name, version=_version(), spans=spans)
        return recording

    def analyse(self, recording: Path) -> None:
        if _ascend() and not (recording / "ASCEND_PROFILER_OUTPUT").exists():
            from torch_npu.profiler.profiler import analyse

            analyse(str(recording))

    def discard(self) -> None:
        self._profile.__exit__(None, None, None)
        self._profile = None

    def _name(self) -> str:
        return _ACTIONS[self._action]

    def _add_rank_metadata(self) -> None:
        """torch adds the rank only if a process group exists when a recording starts; add it in the other cases."""
        if self._spec is None or self._grouped:
            return
        info: Any = {"backend": "none", "rank": self._spec.rank, "world_size": self._spec.identity.world_size}
        if _has_group():
            info = self._profile._get_distributed_info() or info
        self._profile.add_metadata_json("distributedInfo", json.dumps(info, default=str))


BACKEND = TorchBackend


def _ascend() -> ModuleType | None:
    return sys.modules.get("torch_npu")


def _has_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def _library() -> Any:
    if _ascend():
        import torch_npu.profiler as npu

        return npu
    import torch.profiler

    return torch.profiler


def _version() -> str:
    import torch

    return str(torch.__version__)


def _arguments(options: ProfilerOptions) -> dict[str, Any]:
    import torch
    from torch.profiler import ProfilerActivity as Activity

    activities = [Activity.CPU]
    if torch.cuda.is_available():
        if options.activities == (ProfilerActivity.GPU,):
            activities = [Activity.CUDA]
        elif options.activities != (ProfilerActivity.CPU,):
            activities.append(Activity.CUDA)
    return {
        "activities": activities,
        "record_shapes": options.record_shapes,
        "profile_memory": options.profile_memory,
        "with_stack": options.with_stack,
    }


def _ascend_arguments(spec: RecordingSpec) -> dict[str, Any]:
    """torch_npu's names of the options; its handler writes and, if requested, analyses."""
    npu, options = _library(), spec.options
    activities = {ProfilerActivity.CPU: npu.ProfilerActivity.CPU, ProfilerActivity.NPU: npu.ProfilerActivity.NPU}
    return {
        "activities": [activities[each] for each in options.activities if each in activities],
        "record_shapes": options.record_shapes,
        "profile_memory": options.profile_memory,
        "with_stack": options.with_stack,
        "on_trace_ready": npu.tensorboard_trace_handler(
            str(spec.directory), spec.worker, spec.analyse, spec.asynchronous
        ),
        "experimental_config": _experimental(npu, options),
    }


def _experimental(npu: Any, options: ProfilerOptions) -> Any:
    """The options this version of torch_npu knows; for the others its defaults apply."""
    wanted = {
        "profiler_level": getattr(npu.ProfilerLevel, options.profiler_level.name.replace("LevelNone", "Level_none")),
        "l2_cache": options.l2_cache,
        "data_simplification": options.data_simplification,
        "mstx": options.mstx,
        "msprof_tx": options.mstx,  # the name until 2024
        "mstx_domain_include": list(options.mstx_domain_include),
        "mstx_domain_exclude": list(options.mstx_domain_exclude),
        "sys_io": options.sys_io,
        "sys_interconnection": options.sys_interconnection,
    }
    if options.aic_metrics is not AicoreMetrics.AiCoreNone:
        wanted["aic_metrics"] = getattr(npu.AiCMetrics, options.aic_metrics.name)
    if hasattr(npu, "ExportType"):
        wanted["export_type"] = [getattr(npu.ExportType, each.name) for each in options.export_type]
    if options.host_sys and hasattr(npu, "HostSystem"):
        wanted["host_sys"] = [getattr(npu.HostSystem, each.name) for each in options.host_sys]
    known = inspect.signature(npu._ExperimentalConfig).parameters
    return npu._ExperimentalConfig(**{name: value for name, value in wanted.items() if name in known})


def _export(profile: Any, recording: Path, spec: RecordingSpec, *, unfinished: int | None) -> None:
    recording.mkdir(parents=True)
    worker = f"{spec.worker or spec.identity.host}_{os.getpid()}"
    trace = recording / f"{worker}.{time.time_ns()}.pt.trace.json"
    part = trace.with_name(f".{trace.name}.part")
    profile.export_chrome_trace(str(part))
    if unfinished is not None:
        _rename_event(part, b'"ProfilerStep#%d"' % unfinished, b'"Unfinished  #%d"' % unfinished)
    os.replace(part, trace)


def _rename_event(trace: Path, name: bytes, other: bytes) -> None:
    """The time between the last step and the end of the recording must not be read as a step."""
    assert len(name) == len(other)
    with trace.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        position = data.find(name)
        while position >= 0:
            data[position : position + len(other)] = other
            position = data.find(name, position)
