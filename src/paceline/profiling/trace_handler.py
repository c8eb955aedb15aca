"""`tensorboard_trace_handler`: tells a Profiler where to write recordings and whether to analyse them."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.profiling.output_files import MAX_WORKER_NAME
from paceline.profiling.warning import warn


@dataclass(frozen=True)
class TraceHandler:
    """Its directory takes precedence over the Profiler's output_path; the backend writes there when a recording ends."""

    dir_name: str | None = None
    worker_name: str | None = None
    analyse_flag: bool = True
    async_mode: bool = False

    def __call__(self, profiler: object) -> None:
        """Does nothing: the backend has already written the recording to this handler's directory."""


def tensorboard_trace_handler(
    dir_name: str | None = None,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
) -> TraceHandler:
    """Recordings go to `dir_name/{worker_name}_{pid}_{time}_ascend_ms` (default ./data and the host's name)."""
    if worker_name is not None and not (isinstance(worker_name, str) and 0 < len(worker_name) <= MAX_WORKER_NAME):
        warn("Invalid parameter worker_name, reset it to default.")
        worker_name = None
    if dir_name is not None and not (dir_name and isinstance(dir_name, str)):
        warn("Invalid parameter dir_name, reset it to default.")
        dir_name = None
    if not isinstance(analyse_flag, bool):
        warn("analyse_flag is not bool, set by default.")
        analyse_flag = True
    if not isinstance(async_mode, bool):
        warn("async_mode is not bool, set by default.")
        async_mode = False
    return TraceHandler(dir_name, worker_name, analyse_flag, async_mode)


tensor_board_trace_handler = tensorboard_trace_handler
"""Its name until MindSpore 2.5."""
