"""Clusters of other kinds than those of accuracy.py: each family is one piece of the world that a diagnosis must know.

    python benchmarks/accuracy_families.py [--clusters 200] [--seed 1] [--family NAME] [--verbose]

Sharded weights, experts, interleaved and buffered pipelines, shared network cards, heavy-tailed noise; faults that come and
go, begin late or grow; network cards, the whole network, late input. A third of each family is healthy. Printed by family and
by layout: how often the true cause comes first with its subject, alarms on healthy clusters, the error of the predicted step
time (median and nine tenths), and the calibration of the confidence.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from accuracy import Result, Trial, calibrated, examine, line
from accuracy_calibration import print_calibration

from paceline.simulate import ClusterSpec

Random = np.random.Generator
HEALTHY = 1 / 3


@dataclass(frozen=True)
class Family:
    name: str
    layouts: tuple[str, ...]
    spec: Callable[[Random], dict[str, int | bool]]
    faults: tuple[str, ...]
    """Drawn from; {rank}, {host}, {steps} are filled in."""


DETAILED = ("ascend-text", "ascend-db", "kineto")
LINKS = ("ascend-text", "ascend-db")


def _data_parallel(random: Random) -> dict[str, int | bool]:
    hosts, devices = [(1, 8), (2, 4), (2, 8), (4, 4)][random.integers(4)]
    return {
        "hosts": hosts,
        "devices": devices,
        "dp": hosts * devices,
        "tp": 1,
        "pp": 1,
        "micro_batches": 2,
        "layers": 4,
    }


def _several_hosts(random: Random) -> dict[str, int | bool]:
    hosts, devices = [(2, 4), (3, 4), (4, 4), (8, 2)][random.integers(4)]
    tp = int(random.choice([1, devices]))
    return {
        "hosts": hosts,
        "devices": devices,
        "dp": hosts * devices // tp,
        "tp": tp,
        "pp": 1,
        "micro_batches": 2,
        "layers": 4,
    }


def _pipeline(random: Random) -> dict[str, int | bool]:
    pp = int(random.choice([2, 4]))
    return {"hosts": 2, "devices": 8, "dp": 16 // pp, "tp": 1, "pp": pp, "micro_batches": 8, "layers": 16}


FAMILIES = (
    Family(
        "sharded",
        DETAILED,
        lambda random: {**_data_parallel(random), "sharded": True, "hidden": 1024, "sequence": 4096},
        ("slow-rank:{rank}:1.4", "slow-rank:{rank}:1.2", "input-bound:{rank}:100", "slow-link::5"),
    ),
    Family(
        "experts",
        ("kineto",),
        lambda random: {**_data_parallel(random), "experts": 4},
        ("expert-imbalance:{rank}:1.6", "slow-rank:{rank}:1.3", "expert-imbalance:{rank}:2"),
    ),
    Family(
        "interleaved",
        DETAILED,
        lambda random: {**_pipeline(random), "chunks": 2},
        ("slow-rank:{rank}:1.3", "stage-imbalance::1.5", "input-bound:all:80"),
    ),
    Family(
        "buffered",
        DETAILED,
        lambda random: {**_pipeline(random), "buffered_sends": True},
        ("slow-rank:{rank}:1.3", "stage-imbalance::1.5", "slow-link::6"),
    ),
    Family(
        "network",
        LINKS,
        _several_hosts,
        ("slow-nic:{host}:4", "slow-nic:{host}:2.5", "slow-network:4", "slow-link::4"),
    ),
    Family(
        "shared-nic",
        LINKS,
        lambda random: {**_several_hosts(random), "cards_per_nic": 2},
        ("slow-nic:{host}:4", "slow-rank:{rank}:1.4"),
    ),
    Family(
        "comes-and-goes",
        DETAILED,
        lambda random: {**_data_parallel(random), "steps": 10},
        ("slow-rank:{rank}:1.5:some2", "slow-rank:{rank}:1.5:some4", "input-bound:{rank}:120:every2",
         "input-bound:{rank}:120:every3", "periodic-stall:{rank}:3:150", "periodic-stall:all:3:150"),
    ),
    Family(
        "begins-late",
        DETAILED,
        lambda random: {**_data_parallel(random), "steps": 10},
        ("slow-rank:{rank}:1.4:since6", "slow-rank:{rank}:1.6:grows3", "input-bound:{rank}:120:since5"),
    ),
    Family(
        "heavy-tails",
        DETAILED,
        lambda random: {**_data_parallel(random), "heavy_tails": True},
        ("slow-rank:{rank}:1.2", "slow-host:{host}:1.2", "input-bound:{rank}:100"),
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=[family.name for family in FAMILIES])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    drawn = list(trials(options.seed, options.clusters, options.family))
    results = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for (family, _), result in zip(drawn, pool.map(examine, [trial for _, trial in drawn]), strict=True):
            results.append((family, result))
            if options.verbose or not result.right:
                print(f"{family:15}{line(result)}", flush=True)
    print_table("family", [(family, result) for family, result in results])
    print_table("layout", [(result.trial.layout, result) for _, result in results])
    print_calibration(calibrated([result for _, result in results]))


def trials(seed: int, count: int, only: str | None = None) -> Iterator[tuple[str, Trial]]:
    random = np.random.default_rng((seed, 18))
    families = [family for family in FAMILIES if only in (None, family.name)]
    for number in range(count):
        family = families[number % len(families)]
        values = {"steps": 5, **family.spec(random)}
        spec = ClusterSpec(
            **values,  # type: ignore[arg-type]  # the keys are those of ClusterSpec
            noise=float(random.choice([0.004, 0.007, 0.015])),
            declare_groups=bool(random.random() < 0.7),
            seed=int(random.integers(1 << 30)),
        )
        layout = str(random.choice(family.layouts))
        text = str(random.choice(family.faults)).format(
            rank=int(random.integers(spec.world)), host=int(random.integers(spec.hosts))
        )
        silent = layout == "kineto" and text.startswith("slow-link")
        if text.startswith("slow-host") and spec.hosts == 1:
            silent = True
        yield family.name, Trial(layout, spec, () if silent or random.random() < HEALTHY else (text,))


def print_table(title: str, results: Sequence[tuple[str, Result]]) -> None:
    rows: dict[str, list[Result]] = defaultdict(list)
    for key, result in results:
        rows[key].append(result)
    print(f"\n{title:16}  cause first    healthy silent   error of the predicted step: median, nine tenths")
    for key, group in [*sorted(rows.items()), ("all", [result for _, result in results])]:
        faulty, healthy = ([r for r in group if bool(r.trial.faults) == wanted] for wanted in (True, False))
        errors = [100 * r.error for r in faulty if r.error is not None]
        spread = f"{np.quantile(errors, 0.5):6.1f} %  {np.quantile(errors, 0.9):6.1f} %" if errors else ""
        right = [sum(result.right for result in part) for part in (faulty, healthy)]
        print(f"{key:16}  {right[0]:4} of {len(faulty):3}    {right[1]:4} of {len(healthy):3}      {spread}")


if __name__ == "__main__":
    main()
