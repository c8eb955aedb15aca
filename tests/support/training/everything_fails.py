"""A training in which everything of ours fails: monitors that raise, a store that is gone, a full disk. Argument: outputs."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from paceline.profiling import Recorder
from paceline.training import (
    CheckpointMonitor,
    MFLossMonitor,
    Monitor,
    Monitored,
    ObsMonitor,
    TrainingState,
    cloud_session,
)

STEPS = 12


class Broken(Monitor):
    def _raise(self, *_: Any) -> None:
        raise RuntimeError("this monitor is broken")

    train_begin = step_begin = step_end = epoch_end = train_end = train_failed = close = _raise


def main(output: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    weights = {"w": np.zeros(1 << 20, np.float32)}  # 4 MB: more than the disk has
    with cloud_session(output, "s3://gone/run", deadline=3.0) as session:
        monitors = [
            Broken(),
            MFLossMonitor(),
            CheckpointMonitor("m", save_checkpoint_steps=4, outputs=session.outputs),
            ObsMonitor(step_upload_frequence=2, uploader=session.uploader),
        ]
        state = TrainingState(total_steps=STEPS, weights=lambda: weights)
        with Recorder(session.outputs.root / "recording") as recorder, Monitored(monitors, state) as loop:
            for step in range(STEPS):
                loop.step_begin()
                recorder.step()
                loop.step_end(loss=1.0 / (step + 1))
    print("trained", loop.state.step, flush=True)


main(Path(sys.argv[1]))
