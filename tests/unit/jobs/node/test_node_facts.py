"""Links between cards, from the matrices that vendors' tools print."""

from __future__ import annotations

from paceline.jobs.node.node_facts import card_links

NVIDIA = """
\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tSYS\tPIX\t0-31\t0
GPU1\tNV12\t X \tSYS\tSYS\t0-31\t0
GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1
NIC0\tPIX\tSYS\tSYS\t X
"""
ASCEND = """
           NPU0       NPU1       NPU2       NPU3       CPU Affinity
NPU0       X          HCCS       HCCS       PHB        144-167
NPU1       HCCS       X          PHB        HCCS       96-119
NPU2       HCCS       PHB        X          HCCS       0-23
NPU3       PHB        HCCS       HCCS       X          48-71
"""


def test_every_pair_of_cards_counts_once() -> None:
    assert card_links(NVIDIA) == {"NV12": 1, "SYS": 2}
    assert card_links(ASCEND) == {"HCCS": 4, "PHB": 2}
    assert card_links("") == {}
