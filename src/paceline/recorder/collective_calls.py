"""Wrap the communication functions of a framework (monkey-patching), and what is recorded of each call.

The functions of torch.distributed and MindSpore name their arguments alike, so one table of names serves both; what
differs (groups, handles, devices) is behind `FrameworkAdapter`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Protocol

from paceline.recorder.recording_state import RecordingState
from paceline.recorder.step import CollectiveRecord

MAX_PENDING = 4096
"""Handles that were never waited for; the oldest are forgotten."""
ORIGINAL = "__paceline_original__"
"""Attribute of a wrapper: the function it wraps."""
_INHERITED = object()

FUNCTIONS: dict[str, tuple[str, str]] = {
    # name: (operation, argument that holds the message)
    "all_reduce": ("all_reduce", "tensor"),
    "all_reduce_coalesced": ("all_reduce", "tensors"),
    "all_gather": ("all_gather", "tensor_list"),
    "all_gather_coalesced": ("all_gather", "output_tensor_lists"),
    "all_gather_into_tensor": ("all_gather", "output_tensor"),
    "all_gather_into_tensor_uneven": ("all_gather", "output"),
    "all_gather_single": ("all_gather", "output_tensor"),
    "all_gather_object": ("all_gather", ""),
    "reduce_scatter": ("reduce_scatter", "input_list"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_uneven": ("reduce_scatter", "input"),
    "reduce_scatter_single": ("reduce_scatter", "input"),
    "broadcast": ("broadcast", "tensor"),
    "broadcast_object_list": ("broadcast", ""),
    "all_to_all": ("all_to_all", "input_tensor_list"),
    "all_to_all_single": ("all_to_all", "input"),
    "all_to_all_with_output_shape": ("all_to_all", "input_tensor_list"),
    "all_to_all_single_with_output_shape": ("all_to_all", "tensor"),
    "reduce": ("reduce", "tensor"),
    "gather": ("gather", "tensor"),
    "gather_into_tensor": ("gather", "tensor"),
    "gather_object": ("gather", ""),
    "scatter": ("scatter", "tensor"),
    "scatter_tensor": ("scatter", "tensor"),
    "scatter_object_list": ("scatter", ""),
    "send": ("send", "tensor"),
    "recv": ("receive", "tensor"),
    "isend": ("send", "tensor"),
    "irecv": ("receive", "tensor"),
    "barrier": ("barrier", ""),
    "monitored_barrier": ("barrier", ""),
}


class FrameworkAdapter(Protocol):
    def group_name(self, group: Any) -> str:
        """The name under which collectives are recorded; the recorder gets its ranks on first use."""

    def peer_rank(self, group: Any, rank: int | None, group_rank: int | None) -> int | None: ...

    def message_size(self, tensors: Any) -> tuple[int | None, bool]:
        """Bytes of a tensor (or list), and whether calls with it only queue work for a device."""

    def synchronise(self) -> None:
        """Wait for the device."""

    def pending_handle(self, result: Any) -> Any:
        """The handle to wait for, from a call's result; None: the call has finished."""


@dataclass(frozen=True)
class Argument:
    """Where a call has an argument: by position or by name."""

    name: str
    position: int

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[self.position] if self.position < len(args) else kwargs.get(self.name)


NO_ARGUMENT = Argument("", 1 << 30)


class CollectivePatches:
    """Replaces functions of a framework by recording wrappers, and restores the originals."""

    def __init__(self, recorder: RecordingState, framework: FrameworkAdapter, *, nested: bool = False) -> None:
        self.recorder, self.framework = recorder, framework
        self.nested = nested
        """Whether wrapped functions call each other by names that are wrapped too."""
        self.pending: dict[int, CollectiveRecord] = {}
        """By id of the handle; the handles themselves are not kept alive, because they hold tensors."""
        self.threads_inside: set[int] = set()
        """Threads that are inside a wrapped function; what it calls is part of it and not recorded."""
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, wrapper: Any) -> None:
        self._replaced.append((owner, name, vars(owner).get(name, _INHERITED), wrapper))
        setattr(owner, name, wrapper)

    def restore(self) -> None:
        """Newest first. A name that another library has replaced since is left alone: its wrapper goes on calling ours,
        which then only passes the call on."""
        for owner, name, original, wrapper in reversed(self._replaced):
            if vars(owner).get(name) is not wrapper:
                continue
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._replaced.clear()

    def wrap_module(self, module: Any, functions: Mapping[str, tuple[str, str]] = FUNCTIONS) -> None:
        """Wrap every function of the module that is known to communicate."""
        for name, (op, tensors) in functions.items():
            original = getattr(module, name, None)
            if original is not None and not hasattr(original, ORIGINAL):
                self.replace(module, name, self._wrap(original, op, tensors))

    def _wrap(self, original: Callable[..., Any], op: str, tensors: str) -> Callable[..., Any]:
        find = _argument_finder(original)
        message, group = find(tensors), find("group")
        # MindSpore's functions that return their output have the input where torch has the output.
        message = find("tensor") if message is NO_ARGUMENT and tensors else message
        rank, group_rank = _peer_arguments(op, find)
        recorder, framework, threads_inside = self.recorder, self.framework, self.threads_inside
        has_peer, begin, end, nested = rank is not NO_ARGUMENT, self.begin, self.end, self.nested

        # Runs with cold caches between two stretches of computing: each call saved here counts.
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not recorder.running or (nested and get_ident() in threads_inside):
                return original(*args, **kwargs)
            on = args[group.position] if group.position < len(args) else kwargs.get("group")
            peer = (
                framework.peer_rank(on, rank.value(args, kwargs), group_rank.value(args, kwargs)) if has_peer else None
            )
            collective = begin(op, on, message.value(args, kwargs), peer)
            if nested:
                threads_inside.add(get_ident())
            try:
                result = original(*args, **kwargs)
            except BaseException:
                collective.finish()
                raise
            finally:
                if nested:
                    threads_inside.discard(get_ident())
            if result is None and not collective.exact:
                collective.finish()
            else:
                end(collective, result)
            return result

        setattr(wrapper, ORIGINAL, original)
        return wrapper

    def begin(self, op: str, group: Any, tensor: Any, peer: int | None) -> CollectiveRecord:
        framework, recorder = self.framework, self.recorder
        size, queued = framework.message_size(tensor)
        exact = queued and recorder.is_exact
        if exact:
            framework.synchronise()
        collective = CollectiveRecord(op, framework.group_name(group), size, peer, queued, exact)
        recorder.current.add_collective(collective)
        return collective

    def end(self, collective: CollectiveRecord, result: Any) -> None:
        handle = self.framework.pending_handle(result)
        if collective.exact:
            self.framework.synchronise()
        if handle is None or collective.exact:
            collective.finish()
        else:
            collective.blocked = perf_counter_ns() - collective.start
            self.add_pending(handle, collective)

    def add_pending(self, handle: Any, collective: CollectiveRecord) -> None:
        """The collective ends when this handle is waited for."""
        if len(self.pending) >= MAX_PENDING:
            self.pending.pop(next(iter(self.pending)))
        self.pending[id(handle)] = collective

    def wait_for(self, handle: Any, done: bool, wait: Callable[[], Any]) -> Any:
        """Wait for a handle and record for how long; `done`: it had finished before."""
        collective = self.pending.pop(id(handle), None)
        if collective is None or not self.recorder.running:
            return wait()
        start = perf_counter_ns()
        try:
            return wait()
        finally:
            end = perf_counter_ns()
            if not done and not collective.queued:
                collective.end = end
            self.recorder.add_blocked_time(collective, end - start)


def original_of(function: Any) -> Any:
    """The function behind a wrapper; the function itself if it is not wrapped."""
    return getattr(function, ORIGINAL, function)


def _argument_finder(original: Callable[..., Any]) -> Callable[[str], Argument]:
    names = list(inspect.signature(original).parameters)

    def find(name: str) -> Argument:
        return Argument(name, names.index(name)) if name in names else NO_ARGUMENT

    return find


def _peer_arguments(op: str, find: Callable[[str], Argument]) -> tuple[Argument, Argument]:
    """The peer's global rank, and its rank in the group."""
    if op == "send":
        return find("dst"), find("group_dst")
    if op == "receive":
        return find("src"), find("group_src")
    return NO_ARGUMENT, NO_ARGUMENT


def first_tensor(tensors: Any) -> Any:
    while isinstance(tensors, (list, tuple)) and tensors:
        tensors = tensors[0]
    return tensors


def size_of(tensors: Any) -> int | None:
    """Bytes of a tensor, or of all in a list (of lists); None where there is none."""
    if isinstance(tensors, (list, tuple)):
        return sum(size_of(tensor) or 0 for tensor in tensors)
    size = getattr(tensors, "nbytes", None)
    return size if type(size) is int else None
