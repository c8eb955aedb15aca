"""Inside a training script: inputs in, outputs out, checkpoints, monitors.

cloud_session      a context manager or decorator around main(): inputs once per host, outputs back at any end
TrainingState      what a loop tells its monitors; Monitor what they do with it; Monitored the loop's side of it
monitors_from_config   the `callbacks:` list of a YAML file as monitors; as_callback for MindSpore's Model.train
resume             find_resume_point in paceline.checkpoint.resume

Importing this loads nothing but itself: each name comes with its first use, and no thread is started before a session is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.training.config import monitors_from_config as monitors_from_config
    from paceline.training.fetching import Input as Input
    from paceline.training.mindspore_callback import as_callback as as_callback
    from paceline.training.monitor import Monitor as Monitor
    from paceline.training.monitor import Monitored as Monitored
    from paceline.training.monitors.checkpoint import CheckpointMonitor as CheckpointMonitor
    from paceline.training.monitors.loss import MFLossMonitor as MFLossMonitor
    from paceline.training.monitors.obs import ObsMonitor as ObsMonitor
    from paceline.training.monitors.profile import ProfileMonitor as ProfileMonitor
    from paceline.training.monitors.summary import SummaryMonitor as SummaryMonitor
    from paceline.training.outputs import OutputTree as OutputTree
    from paceline.training.ranks import Ranks as Ranks
    from paceline.training.session import CloudSession as CloudSession
    from paceline.training.session import cloud_session as cloud_session
    from paceline.training.state import TrainingState as TrainingState
    from paceline.training.torch_loop import load_torch_state as load_torch_state
    from paceline.training.torch_loop import torch_state as torch_state

_HOMES = {
    "CheckpointMonitor": "monitors.checkpoint",
    "CloudSession": "session",
    "Input": "fetching",
    "MFLossMonitor": "monitors.loss",
    "Monitor": "monitor",
    "Monitored": "monitor",
    "ObsMonitor": "monitors.obs",
    "OutputTree": "outputs",
    "ProfileMonitor": "monitors.profile",
    "Ranks": "ranks",
    "SummaryMonitor": "monitors.summary",
    "TrainingState": "state",
    "as_callback": "mindspore_callback",
    "cloud_session": "session",
    "load_torch_state": "torch_loop",
    "monitors_from_config": "config",
    "torch_state": "torch_loop",
}
"""Name → the module below this one that holds it."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
