"""Ground truth of a simulated run: a file in its directory for tests and demos, ignored by the readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from paceline.simulate.cluster import Cluster, ClusterSpec
from paceline.simulate.fault_effects import FaultSubject
from paceline.simulate.faults import Fault, state_with_faults
from paceline.simulate.recording import clock_offsets
from paceline.simulate.schedule_engine import SimulatedTimeline, run_schedule

TRUTH_FILE = ".paceline-truth.json"


class StepTime(msgspec.Struct, frozen=True):
    """Milliseconds; the duration of a step is that of its slowest rank."""

    mean: float
    median: float


class FaultTruth(msgspec.Struct, frozen=True):
    id: str
    text: str
    amount: float | None
    subject: FaultSubject
    step_ms_without: StepTime  # the same run and seed without this fault


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


def truth_of(timeline: SimulatedTimeline, faults: Sequence[Fault], layout: str) -> Truth:
    """Compare the run with the same run without each fault, and without all faults."""
    cluster, state = timeline.cluster, timeline.state
    spec = cluster.spec
    return Truth(
        spec=spec,
        layout=layout,
        faults=tuple(_fault(cluster, faults, number) for number in range(len(faults))),
        step_ms=_step_time(timeline),
        step_ms_healthy=_step_time(_rerun(cluster, [])),
        steps_ms=tuple((timeline.step_times() / 1e6).tolist()),
        layers_per_stage=state.model.layers,
        micro_batches=state.model.micro_batches,
        clock_offsets=tuple(clock_offsets(cluster, state).tolist()),
        hosts=tuple(cluster.host_name(rank) for rank in range(spec.world)),
        groups=tuple(GroupTruth(group.id, group.kind, group.ranks) for group in cluster.groups),
        missing_ranks=state.damage.missing_ranks,
    )


def _fault(cluster: Cluster, faults: Sequence[Fault], number: int) -> FaultTruth:
    fault = faults[number]
    others = [other for position, other in enumerate(faults) if position != number]
    without = _step_time(_rerun(cluster, others))
    return FaultTruth(fault.id, fault.text, fault.effect.amount, fault.effect.subject, without)


def _rerun(cluster: Cluster, faults: Sequence[Fault]) -> SimulatedTimeline:
    return run_schedule(cluster, state_with_faults(faults, cluster))


def _step_time(timeline: SimulatedTimeline) -> StepTime:
    times = timeline.step_times() / 1e6
    return StepTime(float(np.mean(times)), float(np.median(times)))
