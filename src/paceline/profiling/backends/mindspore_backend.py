"""MindSpore's own profiler, on Ascend or CPU: it writes, we steer, and add what it leaves out.

Its `profile` asks a schedule for the action of each step. Ours answers with what the Profiler has decided, so that start
and stop fall where they were asked for in every form, and its false alarms about "incomplete" data stay away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.profiling.backends.fresh import newest_directory
from paceline.profiling.options import Options
from paceline.profiling.output import Order, StepSpan, add_metadata, add_steps, describe
from paceline.profiling.scheduling import ProfilerAction


class MindSporeBackend:
    name = "mindspore"

    def __init__(self) -> None:
        self._profile: Any = None
        self._order: Order | None = None
        self._action = ProfilerAction.NONE

    def begin(self, order: Order, action: ProfilerAction, step: int) -> None:
        self._order, self._action = order, action
        order.directory.mkdir(parents=True, exist_ok=True)
        _finish_started_work()
        self._profile = self._made(order)
        self._profile.step_num = step
        self._profile.start()

    def advance(self, action: ProfilerAction, step: int) -> None:
        if self._action is ProfilerAction.WARM_UP:
            _finish_started_work()
        self._action = action
        self._profile.step()

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        assert self._order is not None
        # From "record and save" to "none" is the one way out on which it saves without complaint.
        self._profile.current_action = _actions().RECORD_AND_SAVE
        self._action = ProfilerAction.NONE
        self._profile.step()
        self._profile.stop()
        self._profile = None
        recording = newest_directory(self._order, "ms")
        trace = recording / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
        if trace.exists():
            add_steps(trace, spans)
        add_metadata(recording, metadata)
        describe(recording, self._order, self.name, version=_version(), spans=spans)
        return recording

    def analyse(self, recording: Path) -> None:
        if not (recording / "ASCEND_PROFILER_OUTPUT").exists():
            from mindspore.profiler.profiler import analyse

            analyse(str(recording))

    def abandon(self) -> None:
        self._profile.stop()
        self._profile = None

    def _made(self, order: Order) -> Any:
        from mindspore import profiler

        handler = profiler.tensorboard_trace_handler(
            str(order.directory), order.worker, order.analyse or _on_cpu(), order.asynchronous
        )
        if handler is None:
            raise PacelineError(f"MindSpore does not write to {order.directory}", hint="its log says what it minds")
        return profiler.profile(
            start_profile=False, schedule=_following(self), on_trace_ready=handler, **_arguments(order.options)
        )

    def decided(self) -> Any:
        """What the step that begins now is to be, in MindSpore's words."""
        return getattr(_actions(), self._action.name)


BACKEND = MindSporeBackend


def _actions() -> Any:
    from mindspore.profiler.schedule import ProfilerAction as Actions

    return Actions


def _following(backend: MindSporeBackend) -> Any:
    """A schedule by type, because MindSpore accepts no other function."""
    from mindspore.profiler.schedule import Schedule

    class Following(Schedule):  # type: ignore[misc]  # MindSpore is not typed
        def __init__(self) -> None:
            """Without its parent's: the warnings about parameters were given where the user wrote them."""
            self.wait, self.active, self.warmup, self.repeat, self.skip_first = 0, 1, 0, 0, 0

        def __call__(self, step: int) -> Any:
            return backend.decided()

    return Following()


def _arguments(options: Options) -> dict[str, Any]:
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


def _finish_started_work() -> None:
    """PyNative launches operators ahead: without waiting, some of the step before would be recorded."""
    import mindspore
    from mindspore.profiler import profiler_interface

    if _on_cpu():
        profiler_interface._pynative_executor.sync()  # runtime.synchronize() knows devices only
    else:
        mindspore.runtime.synchronize()


def _on_cpu() -> bool:
    """There, analysing is cheap, and impossible afterwards."""
    import mindspore

    return str(mindspore.get_context("device_target")) == "CPU"


def _version() -> str:
    import mindspore

    return str(mindspore.__version__)
