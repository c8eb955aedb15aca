"""Profiling inside a training job: which steps, on which ranks, in how much detail, and where to write them.

Names are imported on first use: `import paceline.profiling` is fast and starts no thread.
"""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False  # for type checkers only; not worth loading `typing` for
if TYPE_CHECKING:
    from paceline.profiling.dynamic import DynamicProfilerMonitor as DynamicProfilerMonitor
    from paceline.profiling.options import AicoreMetrics as AicoreMetrics
    from paceline.profiling.options import ExportType as ExportType
    from paceline.profiling.options import HostSystem as HostSystem
    from paceline.profiling.options import ProfilerActivity as ProfilerActivity
    from paceline.profiling.options import ProfilerLevel as ProfilerLevel
    from paceline.profiling.profiler import Profiler as Profiler
    from paceline.profiling.profiler import profile as profile
    from paceline.profiling.scheduling import ProfilerAction as ProfilerAction
    from paceline.profiling.scheduling import schedule as schedule
    from paceline.profiling.trace_handler import tensor_board_trace_handler as tensor_board_trace_handler
    from paceline.profiling.trace_handler import tensorboard_trace_handler as tensorboard_trace_handler
    from paceline.recorder import Recorder as Recorder

_MODULE_OF = {
    "AicoreMetrics": "options",
    "DynamicProfilerMonitor": "dynamic",
    "ExportType": "options",
    "HostSystem": "options",
    "Profiler": "profiler",
    "ProfilerAction": "scheduling",
    "ProfilerActivity": "options",
    "ProfilerLevel": "options",
    "Recorder": "paceline.recorder",
    "profile": "profiler",
    "schedule": "scheduling",
    "tensor_board_trace_handler": "trace_handler",
    "tensorboard_trace_handler": "trace_handler",
}
"""Each public name and its module."""

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(
        import_module(_MODULE_OF[name] if "." in _MODULE_OF[name] else f"{__name__}.{_MODULE_OF[name]}"), name
    )
    globals()[name] = value
    return value


if os.environ.get("MS_PROFILER_OPTIONS"):
    # So that a script needs no more than this import. MindSpore reads the variable itself, torch does not.
    import_module(f"{__name__}.environment").start_from_environment()
