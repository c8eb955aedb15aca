"""Steps of MindSpore's Model.train for profilers that a script's own callback starts and stops (the guide's StopAtStep)."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Follower(Protocol):
    def training_step(self, number: int) -> None: ...


_followers: weakref.WeakSet[Any] = weakref.WeakSet()
_hooked: list[bool] = []


def follow(follower: Follower) -> None:
    """Tell it from now on, before any callback of the script, which step begins. Nothing happens without MindSpore."""
    if "mindspore" not in sys.modules:
        return
    if not _hooked and not _hook():
        return
    _followers.add(follower)


def _hook() -> bool:
    """Its manager of callbacks, because Model.train may already be running or being called."""
    try:
        from mindspore.train.callback import _CallbackManager as manager

        begin, end = manager.on_train_step_begin, manager.on_train_step_end
    except (ImportError, AttributeError):
        return False  # another MindSpore: recordings then have one step, 0
    manager.on_train_step_begin = _telling(begin, 0)
    manager.on_train_step_end = _telling(end, 1)
    _hooked.append(True)
    return True


def _telling(call: Callable[..., Any], ahead: int) -> Callable[..., Any]:
    @functools.wraps(call)
    def told(manager: Any, run_context: Any) -> Any:
        number = int(run_context.original_args().cur_step_num) + ahead
        for follower in list(_followers):
            follower.training_step(number)
        return call(manager, run_context)

    return told
