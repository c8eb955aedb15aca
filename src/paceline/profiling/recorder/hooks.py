"""Which frameworks' collectives are recorded: those already imported when the recorder starts, by one recorder."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Protocol

from paceline.errors import UsageError

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder
    from paceline.profiling.recorder.torch_hooks import TorchHooks


class Hooks(Protocol):
    def remove(self) -> None: ...


_owner: Recorder | None = None
_installed: list[Hooks] = []


def install(recorder: Recorder) -> None:
    """Stand in front of the communication functions; a second recorder of the same process does not get them."""
    global _owner
    if _owner is not None and _owner.running and _owner is not recorder:
        warnings.warn("another recorder of this process records the collectives; this one does not", stacklevel=3)
        return
    _owner = recorder
    if "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_available():
        from paceline.profiling.recorder.torch_hooks import TorchHooks

        _installed.append(TorchHooks(recorder, sys.modules["torch"]))
    if "mindspore" in sys.modules:
        from paceline.profiling.recorder.mindspore_hooks import MindSporeHooks

        _installed.append(MindSporeHooks(recorder))


def remove(recorder: Recorder) -> None:
    global _owner
    if _owner is recorder:
        while _installed:
            _installed.pop().remove()
        _owner = None


def torch_hooks(recorder: Recorder) -> TorchHooks:
    """Those of this recorder, to record what lies deeper in torch."""
    from paceline.profiling.recorder.torch_hooks import TorchHooks

    for installed in _installed if _owner is recorder else ():
        if isinstance(installed, TorchHooks):
            return installed
    raise UsageError(
        "torch's collectives are not recorded",
        hint="import torch.distributed first; Recorder(collectives=True).start()",
    )
