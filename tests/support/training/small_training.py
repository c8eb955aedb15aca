"""A training as a script: weights that equal the step's number, so that any checkpoint can be checked by its contents.

    python small_training.py '{"root": …, "url": …, "steps": 20, "monitors": [{"type": "CheckpointMonitor", …}], …}'

It writes `progress` (the step it is at) and, at the end, `done`, into its root.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from paceline.training import Monitored, Ranks, TrainingState, cloud_session, monitors_from_config
from paceline.training.session.uploader import Patience


def main(options: dict[str, Any]) -> None:
    root = Path(options["root"])
    ranks = Ranks(*options.get("ranks", (0, 1, 0, 1)))
    impatient = Patience(round=options.get("patience", 2.0), pause=0.2, longest_pause=0.5)
    session = cloud_session(
        root,
        options.get("url"),
        options.get("inputs"),
        ranks=ranks,
        patience=impatient,
        deadline=options.get("deadline", 600),
        sigterm_grace=options.get("grace", 2),
        input_timeout=options.get("input_timeout", 600),
        strict=options.get("strict", False),
    )
    with session:
        train(options, session, root)
    (root / f"done-{ranks.rank}").write_text("")


def train(options: dict[str, Any], session: Any, root: Path) -> None:
    size = options.get("bytes", 4096) // 4
    weights = {"w": np.zeros(size, np.float32), "b": np.zeros(4, np.float16)}
    first = options.get("resume", 0)
    state = TrainingState(
        session.ranks.rank,
        session.ranks.world_size,
        step=first,
        steps_per_epoch=options.get("steps_per_epoch", 4),
        total_steps=options["steps"],
        weights=lambda: weights,
        optimizer_state=lambda: {"exp_avg.w": weights["w"] * 2},
        loss_scale=1024.0,
        epoch=first // options.get("steps_per_epoch", 4) + 1,
    )
    monitors = monitors_from_config(options["monitors"], session)
    with Monitored(monitors, state) as loop:
        while state.step < options["steps"]:
            loop.step_begin()
            weights["w"][:] = weights["b"][:] = state.step + 1
            time.sleep(options.get("seconds", 0.0))
            if state.step + 1 == options.get("raises"):
                raise ValueError("the loss is on fire")
            if state.step + 1 == options.get("exits"):
                sys.exit(options.get("code", 3))
            if state.step + 1 == options.get("native"):
                # Stuck in native code: Python cannot run a signal handler.
                (root / "native").write_text("")
                hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)
            loop.step_end(loss=1.0 / (state.step + 1))
            (root / f"progress-{session.ranks.rank}").write_text(str(state.step))
            if state.step % state.steps_per_epoch == 0:
                loop.epoch_end()
            while options.get("hold") == state.step and not (root / "go").exists():
                time.sleep(0.02)
            while options.get("hold_every_step") and not (root / f"go-{state.step}").exists():
                time.sleep(0.02)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
