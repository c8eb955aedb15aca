"""Small MindSpore trainings, recorded in the ways that need a script's help; run as a program by the tests.

    python mindspore_job.py FOLDER WAY …

Each WAY trains the same network from the same numbers and writes its weights, bit by bit, to FOLDER/WAY.weights.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore.dataset as ds
import numpy as np

import mindspore as ms
from mindspore import nn
from paceline.profiling import DynamicProfilerMonitor, Profiler, schedule, tensorboard_trace_handler

STEPS = 12


def network() -> tuple[nn.Cell, nn.Cell, nn.Optimizer]:
    start = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    net = nn.Dense(8, 8, weight_init=ms.Tensor(start), bias_init="zeros")
    return net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number in range(STEPS):
        yield np.full(8, number / STEPS, np.float32), np.ones(8, np.float32)


def own_loop(ended: Callable[[int], None]) -> nn.Cell:
    """PyNative, a loop of one's own; `ended` is called at the end of each step."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, loss, optimizer = network()
    gradients = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
    for number, (x, y) in enumerate(batches(), start=1):
        _, found = gradients(ms.Tensor(x[None]), ms.Tensor(y[None]))
        optimizer(found)
        ended(number)
    return net


def model_train(*callbacks: Any) -> nn.Cell:
    """Graph mode, Model.train with callbacks."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net, loss, optimizer = network()
    data = ds.GeneratorDataset(lambda: batches(), ["x", "y"], shuffle=False).batch(1)
    ms.Model(net, loss, optimizer).train(1, data, callbacks=list(callbacks), dataset_sink_mode=False)
    return net


class Rewriting:
    """Rewrites a configuration while training runs: steps 2 to 5, nonsense, steps 8 to 10."""

    def __init__(self, folder: Path, monitor: DynamicProfilerMonitor) -> None:
        self.path, self.monitor = folder / "profiler_config.json", monitor
        self.fields = json.loads(self.path.read_text())

    def after(self, number: int) -> None:
        if number == 6:
            self.path.write_text('{"start_step": 8, "sto')
            self._until(lambda: self.monitor._config._last_warning)
        elif number == 7:
            self.ask(8, 10)

    def ask(self, start: int, stop: int) -> None:
        self.path.write_text(json.dumps({**self.fields, "start_step": start, "stop_step": stop, "analyse": True}))
        self._until(lambda: self.monitor._state.start == start)

    def _until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + 600
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def plain_loop(folder: Path) -> nn.Cell:
    return own_loop(lambda _: None)


def plain_model(folder: Path) -> nn.Cell:
    return model_train()


def schedule_loop(folder: Path) -> nn.Cell:
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    with Profiler(
        schedule=plan, on_trace_ready=tensorboard_trace_handler(str(folder)), profile_memory=True
    ) as profiler:
        profiler.add_metadata("model", "one layer")
        return own_loop(lambda _: profiler.step())


def window_model(folder: Path) -> nn.Cell:
    return model_train(Profiler(start_step=2, stop_step=5, output_path=str(folder)))


def guides_model(folder: Path) -> nn.Cell:
    """The guide's callback, whose profiler comes from here."""

    class StopAtStep(ms.train.Callback):  # type: ignore[misc]
        def __init__(self, start_step: int, stop_step: int) -> None:
            super().__init__()
            self.start_step = start_step
            self.stop_step = stop_step
            self.profiler = Profiler(start_profile=False, output_path=str(folder))

        def on_train_step_begin(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == self.start_step:
                self.profiler.start()

        def on_train_step_end(self, run_context: Any) -> None:
            if run_context.original_args().cur_step_num == self.stop_step:
                self.profiler.stop()

        def on_train_end(self, run_context: Any) -> None:
            self.profiler.analyse()

    return model_train(StopAtStep(2, 5))


def dynamic_loop(folder: Path) -> nn.Cell:
    monitor = DynamicProfilerMonitor(folder / "config", folder, poll_interval=0.05)
    (folder / "config" / "profiler_config.json").chmod(0o664)
    rewriting = Rewriting(folder / "config", monitor)
    rewriting.ask(2, 5)

    def ended(number: int) -> None:
        rewriting.after(number)
        monitor.step()

    net = own_loop(ended)
    monitor.stop()
    return net


def dynamic_model(folder: Path) -> nn.Cell:
    monitor = DynamicProfilerMonitor(folder / "config", folder, poll_interval=0.05)
    rewriting = Rewriting(folder / "config", monitor)
    rewriting.ask(2, 5)

    class Between(ms.train.Callback):  # type: ignore[misc]
        def step_end(self, run_context: Any) -> None:
            rewriting.after(run_context.original_args().cur_step_num)

    return model_train(Between(), monitor)


def main() -> None:
    folder = Path(sys.argv[1])
    for way in sys.argv[2:]:
        (folder / way).mkdir()
        net = globals()[way](folder / way)
        (folder / f"{way}.weights").write_text(net.weight.asnumpy().tobytes().hex())


if __name__ == "__main__":
    main()
