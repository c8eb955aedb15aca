"""Record the collectives of MindSpore: functions (mint.distributed, comm_func, ops.communication) and operators.

PyNative mode queues everything, on CPU too: the start of a call is known, its end only in the steps in which the recorder
waits for the device (`exact_every`). A compiled graph calls no Python, so only its steps and phases are recorded.
"""

from __future__ import annotations

import functools
import sys
import zlib
from threading import get_ident
from typing import Any

from paceline.recorder.collective_calls import FUNCTIONS, CollectivePatches, size_of
from paceline.recorder.recording_state import RecordingState

_MODULES = ("mindspore.mint.distributed", "mindspore.communication.comm_func", "mindspore.ops.communication")
_HANDLES = ("mindspore.communication.comm_func", "mindspore.ops.function.comm_func")
_OPERATORS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "AlltoAll": "all_to_all",
    "AlltoAllV": "all_to_all",
    "AllGatherV": "all_gather",
    "ReduceScatterV": "reduce_scatter",
    "Reduce": "reduce",
    "CollectiveGather": "gather",
    "CollectiveScatter": "scatter",
    "Barrier": "barrier",
    "NeighborExchange": "send_receive",
}


class MindSporeHooks:
    """All wrappers of one recorder; `remove` restores the original functions."""

    def __init__(self, recorder: RecordingState) -> None:
        self._recorder = recorder
        self._groups: dict[str, str] = {}
        self.patches = CollectivePatches(recorder, self, nested=True)
        for name in _MODULES:
            if name in sys.modules:
                self.patches.wrap_module(sys.modules[name], FUNCTIONS | {"batch_isend_irecv": ("send_receive", "")})
        self._wrap_handles()
        operators = sys.modules.get("mindspore.ops.operations.comm_ops")
        for name, op in _OPERATORS.items() if operators else ():
            if hasattr(operators, name):
                self._wrap_operator(getattr(operators, name), op)

    def remove(self) -> None:
        self.patches.restore()

    # -- the FrameworkAdapter protocol -------------------------------------------------------------------------------

    def group_name(self, group: Any) -> str:
        known = self._groups.get(group)
        return known if known is not None else self._register_group(group)

    def peer_rank(self, group: Any, rank: int | None, group_rank: int | None) -> int | None:
        return rank

    def message_size(self, tensors: Any) -> tuple[int | None, bool]:
        return size_of(tensors), True

    def synchronise(self) -> None:
        mindspore: Any = sys.modules["mindspore"]
        if mindspore.get_context("device_target") == "CPU":
            mindspore.common.api._pynative_executor.sync()  # runtime.synchronize does not support the CPU
        else:
            mindspore.runtime.synchronize()

    def pending_handle(self, result: Any) -> Any:
        last = result[-1] if isinstance(result, tuple) and result else result
        return last if type(last).__name__ == "CommHandle" else None

    # -- specific to MindSpore ---------------------------------------------------------------------------------------

    def _register_group(self, group: Any) -> str:
        communication: Any = sys.modules["mindspore.communication"]
        name = group or communication.GlobalComm.WORLD_COMM_GROUP
        try:
            ranks = tuple(communication.get_process_group_ranks(name))
        except (RuntimeError, ValueError, TypeError):
            return ""  # not initialised, or this rank is not a member: the call itself will raise
        unique = f"{name}@{zlib.crc32(repr(ranks).encode()):08x}"
        self._recorder.register_group(unique, ranks, name)
        self._groups[group] = unique
        return unique

    def _wrap_handles(self) -> None:
        for module in _HANDLES:
            kind = getattr(sys.modules.get(module), "CommHandle", None)
            if kind is not None and "wait" in vars(kind):
                self._wrap_handle(kind)

    def _wrap_handle(self, kind: Any) -> None:
        original = kind.wait

        def wait(handle: Any) -> Any:
            return self.patches.wait_for(handle, False, lambda: original(handle))

        self.patches.replace(kind, "wait", wait)

    def _wrap_operator(self, kind: Any, op: str) -> None:
        original, recorder, patches = kind.__call__, self._recorder, self.patches

        @functools.wraps(original)
        def call(operator: Any, *args: Any) -> Any:
            # Wrapped functions call operators: these calls are part of the function and not recorded again.
            if not recorder.running or get_ident() in patches.threads_inside:
                return original(operator, *args)
            collective = patches.begin(op, getattr(operator, "group", None), args[0] if args else None, None)
            try:
                result = original(operator, *args)
            except BaseException:
                collective.finish()
                raise
            patches.end(collective, None)
            return result

        patches.replace(kind, "__call__", call)
