"""What really happened: written beside the recording for tests and demos, never read by a reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from paceline.simulate.breakage import Subject
from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.engine import Timeline, run
from paceline.simulate.faults import Fault, conditions_under
from paceline.simulate.recording import clock_offsets

TRUTH_FILE = ".paceline-truth.json"


class StepTime(msgspec.Struct, frozen=True):
    """Milliseconds; a step lasts as long as on its slowest rank."""

    mean: float
    median: float


class FaultTruth(msgspec.Struct, frozen=True):
    id: str
    text: str
    amount: float | None
    subject: Subject
    step_ms_without: StepTime  # the same run, same seed, without this one fault


class GroupTruth(msgspec.Struct, frozen=True):
    id: str
    kind: str
    ranks: tuple[int, ...]


class Truth(msgspec.Struct, frozen=True):
    spec: ClusterSpec
    layout: str
    faults: tuple[FaultTruth, ...]
    step_ms: StepTime
    step_ms_healthy: StepTime  # without all faults
    steps_ms: tuple[float, ...]
    layers_per_stage: tuple[int, ...]
    micro_batches: int
    clock_offsets: tuple[int, ...]  # ns, per rank
    hosts: tuple[str, ...]  # per rank
    groups: tuple[GroupTruth, ...]
    missing_ranks: tuple[int, ...]

    def save(self, directory: Path) -> None:
        text = msgspec.json.format(msgspec.json.encode(self), indent=2)
        (directory / TRUTH_FILE).write_bytes(text + b"\n")


def truth_of(timeline: Timeline, faults: Sequence[Fault], layout: str) -> Truth:
    """Compares the run with what it would have been without each fault, and without all."""
    cluster, conditions = timeline.cluster, timeline.conditions
    spec = cluster.spec
    return Truth(
        spec=spec, layout=layout,
        faults=tuple(_fault(cluster, faults, number) for number in range(len(faults))),
        step_ms=_step_time(timeline), step_ms_healthy=_step_time(_rerun(cluster, [])),
        steps_ms=tuple((timeline.step_times() / 1e6).tolist()),
        layers_per_stage=conditions.model.layers, micro_batches=conditions.model.micro_batches,
        clock_offsets=tuple(clock_offsets(cluster, conditions).tolist()),
        hosts=tuple(cluster.host_name(rank) for rank in range(spec.world)),
        groups=tuple(GroupTruth(group.id, group.kind, group.ranks) for group in cluster.groups),
        missing_ranks=conditions.damage.missing_ranks,
    )  # fmt: skip


def _fault(cluster: Cluster, faults: Sequence[Fault], number: int) -> FaultTruth:
    fault = faults[number]
    others = [other for position, other in enumerate(faults) if position != number]
    without = _step_time(_rerun(cluster, others))
    return FaultTruth(fault.id, fault.text, fault.broken.amount, fault.broken.subject, without)


def _rerun(cluster: Cluster, faults: Sequence[Fault]) -> Timeline:
    return run(cluster, conditions_under(faults, cluster))


def _step_time(timeline: Timeline) -> StepTime:
    times = timeline.step_times() / 1e6
    return StepTime(float(np.mean(times)), float(np.median(times)))
