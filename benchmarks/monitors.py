"""What monitors cost a training loop: the time it waits for them, and its step time with and without, interleaved.

    python benchmarks/monitors.py [--rounds 6] [--steps 25] [--megabytes 20]

A torch model of 20 MB of weights with Adam (60 MB in a checkpoint), trained on the CPU; MFLossMonitor at every step,
SummaryMonitor every 10, CheckpointMonitor (async_save) and ObsMonitor every 50. Rounds with and without monitors
alternate, so that what else the machine does hits both alike. "blocked" is what the loop spends inside its monitors; the
rest of the difference is work beside training that shares its cores.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from paceline.training import Monitor, cloud_session, monitors_from_config, torch_state

SAVE_EVERY = 50
CALLBACKS = [
    {"type": "MFLossMonitor"},
    {"type": "SummaryMonitor", "collect_freq": 10},
    {"type": "CheckpointMonitor", "prefix": "mlp", "save_checkpoint_steps": SAVE_EVERY, "keep_checkpoint_max": 2,
     "async_save": True},
    {"type": "ObsMonitor", "upload_sequence": SAVE_EVERY},
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--megabytes", type=int, default=20)
    options = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.INFO)
    place = Path(tempfile.mkdtemp(prefix="paceline-monitors-"))
    try:
        run(options, place)
    finally:
        shutil.rmtree(place)


def run(options: argparse.Namespace, place: Path) -> None:
    torch.set_num_threads(1)  # the other cores are for what else runs here
    torch.manual_seed(0)
    width = int((options.megabytes * 1e6 / 4 / 4) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = torch.randn(128, width)

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(5):
        step()
    plain: list[float] = []
    watched: list[float] = []
    blocked: dict[str, list[float]] = {}
    logging.getLogger("paceline").addHandler(logging.NullHandler())
    with cloud_session(place / "run", str(place / "home")) as session:
        monitors = monitors_from_config(CALLBACKS, session)
        state = torch_state(model, optimizer, total_steps=options.rounds * options.steps, batch_size=len(data))
        for monitor in monitors:
            monitor.train_begin(state)
        for _ in range(options.rounds):
            plain += [timed(step)[0] for _ in range(options.steps)]
            for _ in range(options.steps):
                watched.append(one_watched(step, monitors, state, blocked))
        for monitor in monitors:
            monitor.train_end(state)
    tell(options, plain, watched, blocked)


def one_watched(step: Any, monitors: list[Monitor], state: Any, blocked: dict[str, list[float]]) -> float:
    spent = {type(monitor).__name__: 0.0 for monitor in monitors}
    began = time.perf_counter()
    for monitor in monitors:
        spent[type(monitor).__name__] += timed(lambda monitor=monitor: monitor.step_begin(state))[0]  # type: ignore[misc]
    loss = step()
    state.step += 1
    state.loss = loss
    for monitor in monitors:
        spent[type(monitor).__name__] += timed(lambda monitor=monitor: monitor.step_end(state))[0]  # type: ignore[misc]
    for name, seconds in spent.items():
        blocked.setdefault(name, []).append(seconds)
    return time.perf_counter() - began


def timed(call: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def tell(
    options: argparse.Namespace, plain: list[float], watched: list[float], blocked: dict[str, list[float]]
) -> None:
    total = sum(watched)
    print(f"\n{options.megabytes} MB of weights, {3 * options.megabytes} MB per checkpoint; a checkpoint and an upload "
          f"every {SAVE_EVERY} steps; {len(watched)} steps each way, {options.steps} at a time")  # fmt: skip
    print(f"{'':24}{'ms per step':>14}{'worst ms':>12}{'share':>10}")
    print(f"{'step without monitors':24}{1e3 * statistics.median(plain):14.2f}{1e3 * max(plain):12.1f}   (median)")
    print(f"{'step with monitors':24}{1e3 * statistics.median(watched):14.2f}{1e3 * max(watched):12.1f}   (median)")
    for name, seconds in blocked.items():
        print(f"  blocked by {name:19}{1e3 * sum(seconds) / len(seconds):8.3f}{1e3 * max(seconds):12.2f}"
              f"{100 * sum(seconds) / total:9.2f} %")  # fmt: skip
    all_of_it = sum(sum(seconds) for seconds in blocked.values())
    print(f"  {'blocked in all':30}{1e3 * all_of_it / len(watched):8.3f}{'':12}{100 * all_of_it / total:9.2f} %")


if __name__ == "__main__":
    main()
