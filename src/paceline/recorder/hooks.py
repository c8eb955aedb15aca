"""Install and remove the collective hooks of the frameworks that are imported when a recorder starts.

Only one recorder of a process has the hooks.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Protocol

from paceline.core.errors import UsageError
from paceline.recorder.recording_state import RecordingState

if TYPE_CHECKING:
    from paceline.recorder.torch_hooks import TorchHooks


class FrameworkHooks(Protocol):
    def remove(self) -> None: ...


_owner: RecordingState | None = None
_installed: list[FrameworkHooks] = []


def install(recorder: RecordingState) -> None:
    """Wrap the communication functions; a second recorder of the same process gets a warning instead."""
    global _owner
    if _owner is not None and _owner.running and _owner is not recorder:
        warnings.warn(
            "another recorder of this process already records the collectives; this one does not", stacklevel=3
        )
        return
    _owner = recorder
    if "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_available():
        from paceline.recorder.torch_hooks import TorchHooks

        _installed.append(TorchHooks(recorder, sys.modules["torch"]))
    if "mindspore" in sys.modules:
        from paceline.recorder.mindspore_hooks import MindSporeHooks

        _installed.append(MindSporeHooks(recorder))


def remove(recorder: RecordingState) -> None:
    global _owner
    if _owner is recorder:
        while _installed:
            _installed.pop().remove()
        _owner = None


def get_torch_hooks(recorder: RecordingState) -> TorchHooks:
    """The torch hooks this recorder has installed."""
    from paceline.recorder.torch_hooks import TorchHooks

    for installed in _installed if _owner is recorder else ():
        if isinstance(installed, TorchHooks):
            return installed
    raise UsageError(
        "the collectives of torch are not recorded",
        hint="import torch.distributed first; Recorder(collectives=True).start()",
    )
