"""The collectives of MindSpore: its functions (mint.distributed, comm_func, ops.communication) and its operators.

PyNative mode queues everything, on CPU too: a call's start is known, its end only in the steps in which the recorder
waits (`exact_every`). A compiled graph calls no Python and is not seen; its steps and phases are.
"""

from __future__ import annotations

import functools
import sys
import zlib
from threading import get_ident
from typing import TYPE_CHECKING, Any

from paceline.profiling.recorder.calls import FUNCTIONS, Calls, size_of

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

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
    """All stand-ins of one recorder; `remove` puts the plain functions back."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._groups: dict[str, str] = {}
        self.calls = Calls(recorder, self, guarded=True)
        for name in _MODULES:
            if name in sys.modules:
                self.calls.watch(sys.modules[name], FUNCTIONS | {"batch_isend_irecv": ("send_receive", "")})
        self._watch_handles()
        operators = sys.modules.get("mindspore.ops.operations.comm_ops")
        for name, op in _OPERATORS.items() if operators else ():
            if hasattr(operators, name):
                self._watch_operator(getattr(operators, name), op)

    def remove(self) -> None:
        self.calls.restore()

    # -- the Framework protocol --------------------------------------------------------------------------------------

    def group_of(self, group: Any) -> str:
        known = self._groups.get(group)
        return known if known is not None else self._meet(group)

    def peer_of(self, group: Any, rank: int | None, group_rank: int | None) -> int | None:
        return rank

    def message(self, tensors: Any) -> tuple[int | None, bool]:
        return size_of(tensors), True

    def synchronise(self) -> None:
        mindspore: Any = sys.modules["mindspore"]
        if mindspore.get_context("device_target") == "CPU":
            mindspore.common.api._pynative_executor.sync()  # runtime.synchronize complains about the CPU
        else:
            mindspore.runtime.synchronize()

    def handle_of(self, result: Any) -> Any:
        last = result[-1] if isinstance(result, tuple) and result else result
        return last if type(last).__name__ == "CommHandle" else None

    # -- what is special about MindSpore -----------------------------------------------------------------------------

    def _meet(self, group: Any) -> str:
        communication: Any = sys.modules["mindspore.communication"]
        name = group or communication.GlobalComm.WORLD_COMM_GROUP
        try:
            ranks = tuple(communication.get_process_group_ranks(name))
        except (RuntimeError, ValueError, TypeError):
            return ""  # not initialised, or not ours: the call itself will say so
        unique = f"{name}@{zlib.crc32(repr(ranks).encode()):08x}"
        self._recorder.know_group(unique, ranks, name)
        self._groups[group] = unique
        return unique

    def _watch_handles(self) -> None:
        for module in _HANDLES:
            kind = getattr(sys.modules.get(module), "CommHandle", None)
            if kind is not None and "wait" in vars(kind):
                self._watch_handle(kind)

    def _watch_handle(self, kind: Any) -> None:
        plain = kind.wait

        def wait(handle: Any) -> Any:
            return self.calls.waited(handle, False, lambda: plain(handle))

        self.calls.replace(kind, "wait", wait)

    def _watch_operator(self, kind: Any, op: str) -> None:
        plain, recorder, calls = kind.__call__, self._recorder, self.calls

        @functools.wraps(plain)
        def call(operator: Any, *args: Any) -> Any:
            # The functions above call operators: what they do is theirs.
            if not recorder.running or get_ident() in calls.busy:
                return plain(operator, *args)
            talk = calls.begin(op, getattr(operator, "group", None), args[0] if args else None, None)
            try:
                result = plain(operator, *args)
            except BaseException:
                talk.finish()
                raise
            calls.end(talk, None)
            return result

        calls.replace(kind, "__call__", call)
