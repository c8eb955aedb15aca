"""What a training job does, in its own Python: record, monitor, save, resume, collect. Argument: a bucket's URL."""

from __future__ import annotations

import array
import sys
from pathlib import Path

from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.collect import collect_data
from paceline.profiling import Recorder
from paceline.training import CheckpointMonitor, MFLossMonitor, Monitored, OutputTree, TrainingState
from paceline.training.runner.initial_weights import read_files

STEPS = 20


def train(first: int, weights: array.array[float], last: int) -> None:
    import numpy

    held = numpy.frombuffer(weights, numpy.float32)
    monitors = [MFLossMonitor(), CheckpointMonitor("m", save_checkpoint_steps=5, outputs=OutputTree(Path("output")))]
    state = TrainingState(step=first, total_steps=STEPS, weights=lambda: {"w": held})
    with Recorder("recording", first_step=first + 1) as recorder, Monitored(monitors, state) as loop:
        for step in range(first, last):
            for place in range(len(weights)):
                weights[place] += step
            recorder.step()
            loop.step_end(loss=1.0 / (step + 1))


def main(url: str) -> None:
    train(0, array.array("f", [0.0] * 64), 10)
    point = find_resume_point("output/checkpoint")
    saved = read_files(point.location, point.files[0])
    weights = array.array("f", saved["w"].tobytes())
    assert (point.global_step, weights[0]) == (10, sum(range(10))), point
    train(10, weights, STEPS)
    point = find_resume_point("output/checkpoint")
    assert (point.global_step, float(read_files(point.location, point.files[0])["w"][0])) == (20, sum(range(20)))
    report = collect_data("recording", url)
    print("collected", report)


main(sys.argv[1])
