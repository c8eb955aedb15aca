"""Memory use of the process and of its device, asked from frameworks that are already imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

UNKNOWN = -1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def sample_memory() -> tuple[int, int, int]:
    """(allocated, reserved, resident) in bytes; the first two of this process's device, UNKNOWN without one."""
    try:
        allocated, reserved = _device_memory()
    except RuntimeError:  # a failing device is reported by the framework
        allocated = reserved = UNKNOWN
    return allocated, reserved, _resident_memory()


def _device_memory() -> tuple[int, int]:
    for name in ("npu", "cuda", "xpu"):
        module = getattr(sys.modules.get("torch"), name, None)
        # Asking an uninitialised device would initialise it, from the wrong thread.
        if module is not None and _is_initialised(module):
            return int(module.memory_allocated()), int(module.memory_reserved())
    runtime = getattr(sys.modules.get("mindspore"), "runtime", None)
    if runtime is not None and _mindspore_uses_device():
        return int(runtime.memory_allocated()), int(runtime.memory_reserved())
    return UNKNOWN, UNKNOWN


def _is_initialised(module: Any) -> bool:
    return bool(getattr(module, "is_initialized", bool)())


def _mindspore_uses_device() -> bool:
    mindspore: Any = sys.modules["mindspore"]
    return mindspore.get_context("device_target") in ("Ascend", "GPU")


def _resident_memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return UNKNOWN  # not Linux
