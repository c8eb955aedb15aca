"""Standing in front of a framework's communication functions: what is noted of a call, and how it is found.

The functions of torch.distributed and mindspore name their arguments alike, so one description of each name does for
both; what differs (groups, handles, devices) is behind `Framework`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from paceline.profiling.recorder.step import Talk

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

MOST_UNWAITED = 4096
"""Handles nobody waits for; older ones are forgotten."""
PLAIN = "__paceline_plain__"
_INHERITED = object()

FUNCTIONS: dict[str, tuple[str, str]] = {
    # name: (operation, the argument whose bytes are the message)
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


class Framework(Protocol):
    def group_of(self, group: Any) -> str:
        """The name collectives carry; the recorder is told its ranks on first use."""
        ...

    def peer_of(self, group: Any, rank: int | None, group_rank: int | None) -> int | None: ...

    def message(self, tensors: Any) -> tuple[int | None, bool]:
        """Bytes of a tensor (or list), and whether calls with it only queue work for a device."""
        ...

    def synchronise(self) -> None:
        """Wait for the device."""
        ...

    def handle_of(self, result: Any) -> Any:
        """What somebody will wait for, out of a call's result; None: it is done."""
        ...


@dataclass(frozen=True)
class Argument:
    """Where a call has an argument: by place or by name."""

    name: str
    place: int

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[self.place] if self.place < len(args) else kwargs.get(self.name)


NOWHERE = Argument("", 1 << 30)


class Calls:
    """Replaces functions of one module, and puts the plain ones back."""

    def __init__(self, recorder: Recorder, framework: Framework, *, guarded: bool = False) -> None:
        self.recorder, self.framework = recorder, framework
        self.guarded = guarded
        """Whether functions stood in for call each other by names that are replaced too."""
        self.unwaited: dict[int, Talk] = {}
        """By id of the handle; the handles themselves are not kept alive, for they hold tensors."""
        self.busy: set[int] = set()
        """Threads in which a function stood in for is at work; what it calls is part of it."""
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, stand_in: Any) -> None:
        self._replaced.append((owner, name, vars(owner).get(name, _INHERITED), stand_in))
        setattr(owner, name, stand_in)

    def restore(self) -> None:
        """Newest first; what somebody else has replaced since stays, and goes on to call ours, which then only passes."""
        for owner, name, plain, stand_in in reversed(self._replaced):
            if vars(owner).get(name) is not stand_in:
                continue
            if plain is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, plain)
        self._replaced.clear()

    def watch(self, module: Any, functions: Mapping[str, tuple[str, str]] = FUNCTIONS) -> None:
        """Stand in front of every function of the module that is known to communicate."""
        for name, (op, tensors) in functions.items():
            plain = getattr(module, name, None)
            if plain is not None and not hasattr(plain, PLAIN):
                self.replace(module, name, self._stand_in(plain, op, tensors))

    def _stand_in(self, plain: Callable[..., Any], op: str, tensors: str) -> Callable[..., Any]:
        find = _arguments(plain)
        message, group = find(tensors), find("group")
        # MindSpore's functions that return their output have the input where torch has the output.
        message = find("tensor") if message is NOWHERE and tensors else message
        rank, group_rank = _peers(op, find)
        recorder, framework, busy = self.recorder, self.framework, self.busy
        peered, begin, end, guarded = rank is not NOWHERE, self.begin, self.end, self.guarded

        # Called from cold caches between two stretches of computing: every call less counts.
        @functools.wraps(plain)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if not recorder.running or (guarded and get_ident() in busy):
                return plain(*args, **kwargs)
            where = args[group.place] if group.place < len(args) else kwargs.get("group")
            peer = framework.peer_of(where, rank.of(args, kwargs), group_rank.of(args, kwargs)) if peered else None
            talk = begin(op, where, message.of(args, kwargs), peer)
            if guarded:
                busy.add(get_ident())
            try:
                result = plain(*args, **kwargs)
            except BaseException:
                talk.finish()
                raise
            finally:
                if guarded:
                    busy.discard(get_ident())
            if result is None and not talk.exact:
                talk.finish()
            else:
                end(talk, result)
            return result

        setattr(stand_in, PLAIN, plain)
        return stand_in

    def begin(self, op: str, group: Any, tensor: Any, peer: int | None) -> Talk:
        framework, recorder = self.framework, self.recorder
        size, later = framework.message(tensor)
        exact = later and recorder.is_exact
        if exact:
            framework.synchronise()
        talk = Talk(op, framework.group_of(group), size, peer, later, exact)
        recorder.current.take(talk)
        return talk

    def end(self, talk: Talk, result: Any) -> None:
        handle = self.framework.handle_of(result)
        if talk.exact:
            self.framework.synchronise()
        if handle is None or talk.exact:
            talk.finish()
        else:
            talk.blocked = perf_counter_ns() - talk.start
            self.expect(handle, talk)

    def expect(self, handle: Any, talk: Talk) -> None:
        """Somebody will wait for this handle."""
        if len(self.unwaited) >= MOST_UNWAITED:
            self.unwaited.pop(next(iter(self.unwaited)))
        self.unwaited[id(handle)] = talk

    def waited(self, handle: Any, done: bool, wait: Callable[[], Any]) -> Any:
        """Wait for a handle, and note for how long; `done`: it had finished before."""
        talk = self.unwaited.pop(id(handle), None)
        if talk is None or not self.recorder.running:
            return wait()
        began = perf_counter_ns()
        try:
            return wait()
        finally:
            ended = perf_counter_ns()
            if not done and not talk.later:
                talk.end = ended
            self.recorder.blocked(talk, ended - began)


def plain_of(function: Any) -> Any:
    return getattr(function, PLAIN, function)


def _arguments(plain: Callable[..., Any]) -> Callable[[str], Argument]:
    names = list(inspect.signature(plain).parameters)

    def find(name: str) -> Argument:
        return Argument(name, names.index(name)) if name in names else NOWHERE

    return find


def _peers(op: str, find: Callable[[str], Argument]) -> tuple[Argument, Argument]:
    """The global rank on the other side, or its rank in the group."""
    if op == "send":
        return find("dst"), find("group_dst")
    if op == "receive":
        return find("src"), find("group_src")
    return NOWHERE, NOWHERE


def first_of(tensors: Any) -> Any:
    while isinstance(tensors, (list, tuple)) and tensors:
        tensors = tensors[0]
    return tensors


def size_of(tensors: Any) -> int | None:
    """Bytes of a tensor, or of all in a list (of lists); None where there is none."""
    if isinstance(tensors, (list, tuple)):
        return sum(size_of(tensor) or 0 for tensor in tensors)
    size = getattr(tensors, "nbytes", None)
    return size if type(size) is int else None
