"""Backend that drives MindSpore's own profiler, on Ascend or CPU, and adds what it does not write.

MindSpore's `profile` asks a schedule for the action of each step. The schedule passed here returns what our Profiler has
decided, so that recordings start and stop at the requested steps, without false warnings about "incomplete" data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError
from paceline.profiling.backends.new_output_dir import find_new_directory
from paceline.profiling.options import ProfilerOptions
from paceline.profiling.output_files import RecordingSpec, StepSpan, add_metadata, add_steps, write_profiler_info
from paceline.profiling.scheduling import ProfilerAction


class MindSporeBackend:
    name = "mindspore"

    def __init__(self) -> None:
        self._profile: Any = None
        self._spec: RecordingSpec | None = None
        self._action = ProfilerAction.NONE

    def begin(self, spec: RecordingSpec, action: ProfilerAction, step: int) -> None:
        self._spec, self._action = spec, action
        spec.directory.mkdir(parents=True, exist_ok=True)
        _synchronise()
        self._profile = self._create_profile(spec)
        self._profile.step_num = step
        self._profile.start()

    def advance(self, action: ProfilerAction, step: int) -> None:
        if self._action is ProfilerAction.WARM_UP:
            _synchronise()
        self._action = action
        self._profile.step()

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        assert self._spec is not None
        # MindSpore saves without a warning only on the transition from RECORD_AND_SAVE to NONE.
        self._profile.current_action = _actions().RECORD_AND_SAVE
        self._action = ProfilerAction.NONE
        self._profile.step()
        self._profile.stop()
        self._profile = None
        recording = find_new_directory(self._spec, "ms")
        trace = recording / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
        if trace.exists():
            add_steps(trace, spans)
        add_metadata(recording, metadata)
        write_profiler_info(recording, self._spec, self.name, version=_version(), spans=spans)
        return recording

    def analyse(self, recording: Path) -> None:
        if not (recording / "ASCEND_PROFILER_OUTPUT").exists():
            from mindspore.profiler.profiler import analyse

            analyse(str(recording))

    def discard(self) -> None:
        self._profile.stop()
        self._profile = None

    def _create_profile(self, spec: RecordingSpec) -> Any:
        from mindspore import profiler

        handler = profiler.tensorboard_trace_handler(
            str(spec.directory), spec.worker, spec.analyse or _on_cpu(), spec.asynchronous
        )
        if handler is None:
            raise PacelineError(f"MindSpore cannot write to {spec.directory}", hint="see the MindSpore log")
        return profiler.profile(
            start_profile=False, schedule=_fixed_schedule(self), on_trace_ready=handler, **_arguments(spec.options)
        )

    def mindspore_action(self) -> Any:
        """The action of the step that begins now, as MindSpore's enum member."""
        return getattr(_actions(), self._action.name)


BACKEND = MindSporeBackend


def _actions() -> Any:
    from mindspore.profiler.schedule import ProfilerAction as Actions

    return Actions


def _fixed_schedule(backend: MindSporeBackend) -> Any:
    """A subclass of MindSpore's Schedule, because MindSpore accepts no other callable."""
    from mindspore.profiler.schedule import Schedule

    class FixedSchedule(Schedule):  # type: ignore[misc]  # MindSpore is not typed
        def __init__(self) -> None:
            """Does not call the parent, which would warn about parameters the user did not write."""
            self.wait, self.active, self.warmup, self.repeat, self.skip_first = 0, 1, 0, 0, 0

        def __call__(self, step: int) -> Any:
            return backend.mindspore_action()

    return FixedSchedule()


def _arguments(options: ProfilerOptions) -> dict[str, Any]:
    from mindspore.profiler import common

    kinds = common.constant
    experimental = _experimental()(
        profiler_level=kinds.ProfilerLevel(options.profiler_level.value),
        aic_metrics=kinds.AicoreMetrics(options.aic_metrics.value),
        l2_cache=options.l2_cache,
        mstx=options.mstx,
        data_simplification=options.data_simplification,
        export_type=[kinds.ExportType(each.value) for each in options.export_type],
        mstx_domain_include=list(options.mstx_domain_include),
        mstx_domain_exclude=list(options.mstx_domain_exclude),
        sys_io=options.sys_io,
        sys_interconnection=options.sys_interconnection,
        host_sys=[kinds.HostSystem(each.value) for each in options.host_sys],
    )
    return {
        "activities": [kinds.ProfilerActivity(each.value) for each in options.activities],
        "with_stack": options.with_stack,
        "profile_memory": options.profile_memory,
        "data_process": options.data_process,
        "parallel_strategy": options.parallel_strategy,
        "hbm_ddr": options.hbm_ddr,
        "pcie": options.pcie,
        "sync_enable": options.sync_enable,
        "record_shapes": options.record_shapes,
        "experimental_config": experimental,
    }


def _experimental() -> Any:
    from mindspore.profiler import _ExperimentalConfig

    return _ExperimentalConfig


def _synchronise() -> None:
    """PyNative launches operators ahead: without waiting, parts of the previous step would be recorded."""
    from mindspore.profiler import profiler_interface

    import mindspore

    if _on_cpu():
        profiler_interface._pynative_executor.sync()  # runtime.synchronize() does not support the CPU
    else:
        mindspore.runtime.synchronize()


def _on_cpu() -> bool:
    """On CPU, analysis is cheap, and impossible afterwards."""
    import mindspore

    return str(mindspore.get_context("device_target")) == "CPU"


def _version() -> str:
    import mindspore

    return str(mindspore.__version__)
