"""Paceline's monitors in MindFormers' registry, under the names that its YAML files use.

    import paceline.integrations.mindformers            # in the training script, before the YAML file's callbacks are built

After that `callbacks:` of a YAML file may name ObsMonitor (MindFormers removed its own in 1.6), CheckpointMonitor (also as
CheckpointMointor), ProfileMonitor and RecorderMonitor, and gets ours, with the parameters of MindFormers' versions. What was
registered under these names before is available as MindFormersCheckpointMonitor and so on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from paceline.training.monitor import Monitor
from paceline.training.monitors.from_yaml import monitor_from_entry
from paceline.training.monitors.mindspore_callback import as_callback
from paceline.training.session.output_tree import OutputTree, default_root

NAMES = ("ObsMonitor", "CheckpointMonitor", "CheckpointMointor", "ProfileMonitor", "RecorderMonitor")


class MonitorCallback(Callback):  # type: ignore[misc]
    """A MindSpore callback made of the options of one entry of `callbacks:`."""

    kind = ""

    def __init__(self, initial_step: int = 0, **options: Any) -> None:
        super().__init__()
        self.monitor: Monitor = monitor_from_entry({"type": self.kind, **options}, outputs=_outputs())
        self._callback = as_callback([self.monitor], initial_step=initial_step)

    def on_train_begin(self, run_context: Any) -> None:
        self._callback.on_train_begin(run_context)

    def on_train_step_begin(self, run_context: Any) -> None:
        self._callback.on_train_step_begin(run_context)

    def on_train_step_end(self, run_context: Any) -> None:
        self._callback.on_train_step_end(run_context)

    def on_train_epoch_end(self, run_context: Any) -> None:
        self._callback.on_train_epoch_end(run_context)

    def on_train_end(self, run_context: Any) -> None:
        self._callback.on_train_end(run_context)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._callback.__exit__(kind, error, trace)


def register() -> None:
    """Called by the import; a second call changes nothing."""
    kept = MindFormerModuleType.CALLBACK
    for name in NAMES:
        known = MindFormerRegister.registry.get(kept, {}).get(name)
        if isinstance(known, type) and issubclass(known, MonitorCallback):
            continue
        if known is not None:
            MindFormerRegister.registry[kept][f"MindFormers{name}"] = known
            del MindFormerRegister.registry[kept][name]
        ours = type(name, (MonitorCallback,), {"kind": name, "__doc__": MonitorCallback.__doc__})
        MindFormerRegister.register_cls(ours, kept)


def _outputs() -> OutputTree:
    """The directory that MindFormers writes to."""
    try:
        from mindformers.tools.utils import get_output_root_path
    except ImportError:
        return OutputTree(default_root())
    return OutputTree(Path(get_output_root_path()).absolute())


register()
