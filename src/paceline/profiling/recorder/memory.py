"""Memory of the process and of its device, from what is already loaded; sampled by the background thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNKNOWN = -1
Sampler = Callable[[], tuple[int, int]]
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_now() -> tuple[int, int, int]:
    """(allocated, reserved, resident) in bytes; the first two of this process's device, UNKNOWN without one."""
    try:
        allocated, reserved = _device()
    except RuntimeError:  # a device in trouble says so elsewhere
        allocated = reserved = UNKNOWN
    return allocated, reserved, _resident()


def _device() -> tuple[int, int]:
    for name in ("npu", "cuda", "xpu"):
        module = getattr(sys.modules.get("torch"), name, None)
        # Asking an uninitialised device would initialise it, in the wrong thread and for nothing.
        if module is not None and _initialised(module):
            return int(module.memory_allocated()), int(module.memory_reserved())
    runtime = getattr(sys.modules.get("mindspore"), "runtime", None)
    if runtime is not None and _on_ascend():
        return int(runtime.memory_allocated()), int(runtime.memory_reserved())
    return UNKNOWN, UNKNOWN


def _initialised(module: Any) -> bool:
    return bool(getattr(module, "is_initialized", bool)())


def _on_ascend() -> bool:
    mindspore: Any = sys.modules["mindspore"]
    return mindspore.get_context("device_target") in ("Ascend", "GPU")


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return UNKNOWN  # not Linux
