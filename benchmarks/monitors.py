"""What monitors cost a training loop: the time it waits for them, and its step time with and without, interleaved.

    python benchmarks/monitors.py [--rounds 6] [--steps 25] [--megabytes 20] [--limit 1.0]

A torch model of 20 MB of weights with Adam (60 MB in a checkpoint), trained on the CPU; MFLossMonitor at every step,
SummaryMonitor every 10, CheckpointMonitor (async_save) and ObsMonitor every 50. Rounds with and without monitors
alternate, so that what else the machine does hits both alike. "blocked" is what the loop spends inside its monitors'
step_begin and step_end, as a share of the step itself; the rest of the difference is work beside training that shares its
cores. The last column is the same share in CPU time of the loop's thread, which other programs on the machine do not
change. Exit code 1: more than --limit percent of the time was blocked.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from paceline.training import Monitor, cloud_session, monitors_from_config, torch_state

SAVE_EVERY = 50
CALLBACKS = [
    {"type": "MFLossMonitor"},
    {"type": "SummaryMonitor", "collect_freq": 10},
    {
        "type": "CheckpointMonitor",
        "prefix": "mlp",
        "save_checkpoint_steps": SAVE_EVERY,
        "keep_checkpoint_max": 2,
        "async_save": True,
    },
    {"type": "ObsMonitor", "upload_sequence": SAVE_EVERY},
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--limit", type=float, default=1.0, help="percent")
    options = parser.parse_args()
    if options.rounds * options.steps < SAVE_EVERY:
        parser.error(f"rounds × steps must be at least {SAVE_EVERY}: else nothing is saved")
    logging.getLogger("paceline").setLevel(logging.INFO)
    place = Path(tempfile.mkdtemp(prefix="paceline-monitors-"))
    try:
        share = run(options, place)
    finally:
        shutil.rmtree(place)
    if share > options.limit:
        sys.exit(f"missed: monitors block {share:.2f} % of a step, more than {options.limit:g} %")


def run(options: argparse.Namespace, place: Path) -> float:
    """The percentage of a step that is blocked."""
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
    plain: list[Spent] = []
    watched: list[Spent] = []
    blocked: dict[str, list[Spent]] = {}
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
    return tell(options, plain, watched, blocked)


def one_watched(step: Any, monitors: list[Monitor], state: Any, blocked: dict[str, list[Spent]]) -> Spent:
    def all_of_it() -> None:
        spent = {type(each).__name__: timed(partial(each.step_begin, state))[0] for each in monitors}
        loss = step()
        state.step += 1
        state.loss = loss
        for monitor in monitors:
            name = type(monitor).__name__
            blocked.setdefault(name, []).append(spent[name] + timed(partial(monitor.step_end, state))[0])

    return timed(all_of_it)[0]


class Spent(NamedTuple):
    """Seconds by the clock, and of this thread's CPU."""

    wall: float
    cpu: float

    def __add__(self, other: Any) -> Spent:
        return Spent(self.wall + other.wall, self.cpu + other.cpu)


def timed(call: Any) -> tuple[Spent, Any]:
    wall, cpu = time.perf_counter(), time.thread_time()
    result = call()
    return Spent(time.perf_counter() - wall, time.thread_time() - cpu), result


def tell(
    options: argparse.Namespace, plain: list[Spent], watched: list[Spent], blocked: dict[str, list[Spent]]
) -> float:
    print(
        f"\n{options.megabytes} MB of weights, {3 * options.megabytes} MB per checkpoint; a checkpoint and an upload "
        f"every {SAVE_EVERY} steps; {len(watched)} steps each way, {options.steps} at a time"
    )
    print(f"{'':32}{'ms per step':>12}{'worst ms':>11}{'share':>10}{'CPU ms':>10}{'share':>10}")
    for name, steps in (("step without monitors, median", plain), ("step with monitors, median", watched)):
        wall, cpu = (1e3 * statistics.median(each[column] for each in steps) for column in (0, 1))
        print(f"{name:32}{wall:12.2f}{1e3 * max(steps).wall:11.1f}{'':10}{cpu:10.2f}")
    without, with_them = (statistics.median(each.wall for each in steps) for steps in (plain, watched))
    print(f"{'  difference of these':32}{1e3 * (with_them - without):12.2f}")
    rows = {f"  blocked by {name}": spent for name, spent in blocked.items()}
    rows["  blocked in all"] = [sum(each, Spent(0, 0)) for each in zip(*blocked.values(), strict=True)]
    in_all = Spent(*(sum(each[column] for each in rows["  blocked in all"]) for column in (0, 1)))
    total = Spent(*(sum(each[column] for each in watched) - in_all[column] for column in (0, 1)))
    for name, spent in rows.items():
        wall, cpu = sum(each.wall for each in spent), sum(each.cpu for each in spent)
        print(
            f"{name:32}{1e3 * wall / len(spent):12.3f}{1e3 * max(spent).wall:11.2f}{100 * wall / total.wall:9.2f} %"
            f"{1e3 * cpu / len(spent):10.3f}{100 * cpu / total.cpu:9.2f} %"
        )
    return 100 * in_all.wall / total.wall


if __name__ == "__main__":
    main()
