"""Network faults in the independent simulator of ../shared/kit: the component that was broken is named, from two hosts on.

Bytes and times of every link are taken straight from the simulator, so that this is about the model and the search only.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.diagnosis.components.link_faults import LinkFault, link_faults
from paceline.diagnosis.hardware import default_hardware
from paceline.metrics.network.link_model import link_excess
from paceline.metrics.network.link_traffic import LinkTraffic

KIT = Path(__file__).parents[4] / "shared" / "kit"
if not (KIT / "cluster_sim.py").exists():
    pytest.skip("needs ../shared/kit", allow_module_level=True)
sys.path.insert(0, str(KIT))
from cluster_sim import LINK, Cluster, Simulation  # noqa: E402

Hit = Callable[[int, int], bool]
"""Whether what is broken lies between these hosts."""
FACTOR = 4.0
HOSTS = (2, 3, 4, 8)
LAYOUTS: dict[str, dict[str, int]] = {"one ring": {}, "rails": {"tp": 4, "dp_bytes": 20 << 20}}


class Broken(Simulation):  # type: ignore[misc]
    """With a part of the network at a quarter of its bandwidth; latency stays."""

    def __init__(self, cluster: Any, hit: Hit) -> None:
        self.hit = hit
        super().__init__(cluster)

    def transfer(self, src: int, dst: int, nbytes: float, kind: str) -> tuple[str, float, int]:
        transport, time, messages = super().transfer(src, dst, nbytes, kind)
        if transport != "RDMA" or not self.hit(self.c.host(src), self.c.host(dst)):
            return transport, time, messages
        latency = messages * LINK[transport]["alpha"]
        return transport, latency + FACTOR * (time - latency), messages

    def traffic(self) -> LinkTraffic:
        """One row per link and operator and size of message."""
        found: dict[tuple[int, int, str, str, int, int], list[tuple[float, float, float]]] = defaultdict(list)
        for op in (op for ops in self.ops for op in ops if op.step and op.out and op.out.bytes > 1e6):
            flow = op.out
            kind = (flow.src, flow.dst, flow.transport, op.op.lower(), len(op.group.ranks), round(np.log2(op.bytes)))
            found[kind].append((flow.bytes, 1e3 * flow.time, flow.messages))
        keys = sorted(found)
        values = [np.array(found[key]) for key in keys]
        quartiles = np.array([np.quantile(each[:, 1] / each[:, 0], [0.25, 0.5, 0.75]) for each in values])
        kinds = {kind: number for number, kind in enumerate(sorted({key[2:] for key in keys}))}
        sums = np.array([each.sum(axis=0) for each in values])
        return LinkTraffic(
            src=np.array([key[0] for key in keys]),
            dst=np.array([key[1] for key in keys]),
            transport=np.array([key[2] for key in keys], dtype=object),
            op=np.array([key[3] for key in keys], dtype=object),
            size=np.array([key[4] for key in keys]),
            kind=np.array([kinds[key[2:]] for key in keys]),
            bytes=sums[:, 0],
            time=sums[:, 1],
            message=sums[:, 0] / sums[:, 2],
            execution=np.array([each[:, 0].mean() for each in values]),
            executions=np.array([float(len(each)) for each in values]),
            cost=quartiles[:, 1],
            scatter=(quartiles[:, 2] - quartiles[:, 0]) / 1.349 / quartiles[:, 1],
        )


def faults(layout: str, hosts: int, hit: Hit, seed: int = 1) -> tuple[LinkFault, ...]:
    broken = Broken(Cluster(hosts=hosts, devices=4, steps=3, layers=2, seed=seed, **LAYOUTS[layout]), hit)
    named = {rank: f"host{broken.c.host(rank)}" for rank in range(broken.c.ranks)}
    return link_faults(link_excess(broken.traffic(), named, default_hardware().transports))


def names(found: tuple[LinkFault, ...]) -> list[set[tuple[str, tuple[int, ...]]]]:
    """Each finding's component and those that cannot be told from it."""
    return [
        {(one.family, one.key) for one in (fault.explanation.component, *fault.explanation.same)} for fault in found
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hosts", HOSTS)
def test_a_network_card(layout: str, hosts: int) -> None:
    found = faults(layout, hosts, lambda a, b: 1 in (a, b))
    assert len(found) == 1 and ("nic", (1,)) in names(found)[0]
    assert found[0].explanation.component.family == "nic" and found[0].explanation.factor == pytest.approx(4, rel=0.1)
    assert (len(names(found)[0]) > 1) is (hosts == 2), "with two hosts both cards and the network fit"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hosts", HOSTS)
def test_everything_between_two_hosts(layout: str, hosts: int) -> None:
    found = faults(layout, hosts, lambda a, b: {a, b} == {0, 1})
    assert len(found) == 1 and ("pair", (0, 1)) in names(found)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hosts", [4, 8])
def test_a_switch(layout: str, hosts: int) -> None:
    found = faults(layout, hosts, lambda a, b: (a < hosts // 2) != (b < hosts // 2))
    assert len(found) == 1 and ("cut", tuple(range(hosts // 2))) in names(found)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hosts", HOSTS)
def test_the_whole_network(layout: str, hosts: int) -> None:
    found = faults(layout, hosts, lambda _a, _b: True)
    assert len(found) == 1 and ("fabric", ()) in names(found)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_healthy_network(layout: str, hosts: int, seed: int) -> None:
    assert faults(layout, hosts, lambda _a, _b: False, seed) == ()
