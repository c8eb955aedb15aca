"""For training scripts: download inputs, upload outputs, save checkpoints, monitor training.

cloud_session          context manager or decorator around main(): inputs once per host, outputs uploaded on every exit
TrainingState          what a training loop passes to its monitors (Monitor); Monitored calls them from the loop
monitors_from_config   monitors from the `callbacks:` list of a YAML file; as_callback for MindSpore's Model.train
resume                 find_resume_point in paceline.checkpoint.resume.resume_point

Importing this package loads nothing else: names are imported on first use, and no thread starts before a session does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.training.checkpointing.torch_resume import resume_torch as resume_torch
    from paceline.training.checkpointing.torch_state import load_torch_state as load_torch_state
    from paceline.training.checkpointing.torch_state import torch_state as torch_state
    from paceline.training.monitor import Monitor as Monitor
    from paceline.training.monitor import Monitored as Monitored
    from paceline.training.monitor_calls import StopTraining as StopTraining
    from paceline.training.monitors.checkpoint import CheckpointMonitor as CheckpointMonitor
    from paceline.training.monitors.from_yaml import monitors_from_config as monitors_from_config
    from paceline.training.monitors.loss import MFLossMonitor as MFLossMonitor
    from paceline.training.monitors.mindspore_callback import as_callback as as_callback
    from paceline.training.monitors.obs import ObsMonitor as ObsMonitor
    from paceline.training.monitors.profile import ProfileMonitor as ProfileMonitor
    from paceline.training.monitors.recorder import RecorderMonitor as RecorderMonitor
    from paceline.training.monitors.summary import SummaryMonitor as SummaryMonitor
    from paceline.training.ranks import Ranks as Ranks
    from paceline.training.session.cloud_session import CloudSession as CloudSession
    from paceline.training.session.cloud_session import cloud_session as cloud_session
    from paceline.training.session.input_download import Input as Input
    from paceline.training.session.output_tree import OutputTree as OutputTree
    from paceline.training.training_state import TrainingState as TrainingState

_MODULES = {
    "CheckpointMonitor": "monitors.checkpoint",
    "CloudSession": "session.cloud_session",
    "Input": "session.input_download",
    "MFLossMonitor": "monitors.loss",
    "Monitor": "monitor",
    "Monitored": "monitor",
    "ObsMonitor": "monitors.obs",
    "OutputTree": "session.output_tree",
    "ProfileMonitor": "monitors.profile",
    "Ranks": "ranks",
    "RecorderMonitor": "monitors.recorder",
    "StopTraining": "monitor_calls",
    "SummaryMonitor": "monitors.summary",
    "TrainingState": "training_state",
    "as_callback": "monitors.mindspore_callback",
    "cloud_session": "session.cloud_session",
    "load_torch_state": "checkpointing.torch_state",
    "monitors_from_config": "monitors.from_yaml",
    "resume_torch": "checkpointing.torch_resume",
    "torch_state": "checkpointing.torch_state",
}
"""Name → module that defines it, relative to this package."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("msgspec", "numpy"):
            raise
        raise ModuleNotFoundError(
            f"paceline.training.{name} needs {error.name}, which is not installed: pip install {error.name}",
            name=error.name,
        ) from None
